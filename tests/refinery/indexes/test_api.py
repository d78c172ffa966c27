"""`refinery.search` over everything that it takes."""

import asyncio

import pytest
import yaml

import refinery
from refinery import Passage, RefineryError
from refinery.contract.records import write_records
from refinery.indexes.build import build_index
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.search.build import build_retriever

PASSAGES = [
    Passage(id="dune", title="Dune", text="Dune is a film that Maria Torvel directed."),
    Passage(id="lyon", title="Lyon", text="Lyon is a city in France."),
]


@pytest.fixture
def source(tmp_path):
    write_records(tmp_path / "passages.jsonl", PASSAGES)
    return tmp_path / "passages.jsonl"


def indexed(source):
    build_index(source, source.parent / "index", RetrieverConfig())
    return source.parent / "index"


def recipe(source):
    (source.parent / "bm25.yaml").write_text(yaml.safe_dump({"name": "bm25", "passages": str(source)}))
    return source.parent / "bm25.yaml"


def folder_of_texts(source):
    (source.parent / "texts").mkdir()
    for passage in PASSAGES:
        (source.parent / "texts" / f"{passage.id}.txt").write_text(passage.text)
    return source.parent / "texts"


@pytest.mark.parametrize(
    "index",
    [
        lambda source: source,
        str,
        indexed,
        recipe,
        folder_of_texts,
        lambda source: {"passages": source},
        lambda source: build_retriever(RetrieverConfig(passages=source)),
    ],
    ids=["path", "text", "index", "recipe", "folder", "dict", "retriever"],
)
def test_a_corpus_is_searched_however_it_is_named(source, index):
    (hit,) = refinery.search(index(source), "who directed the film", k=1)
    assert "Maria Torvel" in hit.passage.text
    assert hit.retrieval_score > 0


def test_several_queries_give_the_hits_of_each(source):
    hits = refinery.search(source, ["a film", "a city", "nothing here"])
    assert [[hit.passage.id for hit in found] for found in hits] == [["dune"], ["lyon"], []]


def test_changes_go_over_the_recipes_keys(source):
    loud = refinery.search(recipe(source), "film", **{"options.k1": 2.0})
    assert loud[0].retrieval_score != refinery.search(recipe(source), "film")[0].retrieval_score


def test_the_twin_finds_the_same_and_the_sync_form_runs_in_a_loop(source):
    async def cell() -> tuple:
        return await refinery.asearch(source, "film"), refinery.search(source, "film")

    awaited, sync = asyncio.run(cell())
    assert awaited == sync == refinery.search(source, "film")


@pytest.mark.parametrize(
    ("index", "changes", "message"),
    [
        ("absent.jsonl", {}, "absent.jsonl: "),
        ("passages.jsonl", {"k": 0}, "k: is 0. Ask for at least one passage."),
        ("passages.jsonl", {"stemer": 1}, "passages.jsonl: stemer: unknown key."),
        ({"nam": "bm25"}, {}, "retriever: nam: unknown key. Did you mean 'name'?"),
        ({"name": "bm52"}, {}, "retriever: name: no retriever 'bm52'. Did you mean 'bm25'?"),
    ],
)
def test_what_cannot_be_searched_is_one_line(source, monkeypatch, index, changes, message):
    monkeypatch.chdir(source.parent)
    with pytest.raises(RefineryError) as caught:
        refinery.search(index, "film", **changes)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
