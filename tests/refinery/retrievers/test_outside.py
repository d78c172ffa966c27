"""A retriever from outside: one file, named in a recipe, searched by every stage as one that ships."""

import pytest

from refinery.errors import PluginError, RecipeError
from refinery.indexes.build import build_index
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.search.build import build_retriever, load_retriever_config

COLBERT = """
from refinery.contract.records import Passage
from refinery.retrievers.base import Hit, Retriever, RetrieverConfig
from refinery.runtime.recipe import Recipe


class Options(Recipe):
    greeting: str = "Hello"


class ColBert(Retriever):
    def __init__(self, options):
        self.revision = f"colbert {options.greeting}"
        self._options = options

    async def search(self, query, *, k, question=None):
        return [Hit(Passage(id="1", title=query, text=self._options.greeting), 1.0)][:k]


def build(config: RetrieverConfig, options: Options) -> ColBert:
    return ColBert(options)
"""


@pytest.mark.parametrize("name", ["my_lab.colbert", "my_lab.colbert:build"])
def test_one_file_outside_is_a_retriever(my_lab, search, name):
    my_lab("colbert", COLBERT)
    retriever = build_retriever(RetrieverConfig(name=name, options={"greeting": "Hi"}))
    assert search(retriever, "Lyon")[0].passage.text == "Hi"
    assert retriever.revision == "colbert Hi"


def test_a_misspelt_option_of_it_gets_the_nearest_one(my_lab):
    my_lab("colbert", COLBERT)
    with pytest.raises(RecipeError, match="options.greting: unknown key. Did you mean 'greeting'"):
        build_retriever(RetrieverConfig(name="my_lab.colbert", options={"greting": "Hi"}))


def test_it_is_told_that_it_makes_no_retriever(my_lab):
    my_lab("colbert", "class ColBert: ...\n\ndef build(config, options):\n    return ColBert()\n")
    with pytest.raises(PluginError, match="retriever 'my_lab.colbert': a ColBert has no corpus_hash, revision, search. It should be a "):
        build_retriever(RetrieverConfig(name="my_lab.colbert"))


def test_it_is_told_that_its_options_are_not_a_recipe(my_lab):
    my_lab("colbert", "def build(config, options: dict):\n    ...\n")
    with pytest.raises(PluginError, match="my_lab.colbert:build: `options` is annotated .*dict.* Annotate it with a subclass of Recipe"):
        build_retriever(RetrieverConfig(name="my_lab.colbert"))


def test_a_retriever_without_indexing_keeps_no_index(my_lab, tmp_path):
    my_lab("colbert", COLBERT)
    with pytest.raises(RecipeError, match="name: my_lab.colbert has no index"):
        build_index(tmp_path / "passages.jsonl", tmp_path / "index", RetrieverConfig(name="my_lab.colbert"))


def test_an_index_folder_cannot_name_a_module_to_run(my_lab, passages, tmp_path):
    my_lab("colbert", "open('was_run', 'w').close()\n")
    (tmp_path / "passages.jsonl").write_text("\n".join(passage.model_dump_json() for passage in passages))
    build_index(tmp_path / "passages.jsonl", tmp_path / "index", RetrieverConfig(name="bm25"))
    manifest = tmp_path / "index" / "index.json"
    manifest.write_text(manifest.read_text().replace('"bm25"', '"my_lab.colbert:build"'))
    with pytest.raises(PluginError, match="a file must not name a module to run"):
        load_retriever_config(tmp_path / "index")
    assert not (tmp_path / "was_run").exists()
