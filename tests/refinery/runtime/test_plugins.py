import pytest

from refinery.errors import PluginError
from refinery.runtime import plugins


def test_a_plugin_is_the_file_of_its_name():
    assert plugins.load("refinery.retrievers", "bm25").__name__ == "refinery.retrievers.bm25"


def test_what_plugins_share_is_not_a_plugin():
    assert "bm25" in plugins.available("refinery.retrievers")
    assert "base" not in plugins.available("refinery.retrievers")


def test_a_misspelt_name_gets_the_nearest_one():
    with pytest.raises(PluginError, match=r"no retriever 'bm52'. Did you mean 'bm25'\? Available: bm25, candidates"):
        plugins.load("refinery.retrievers", "bm52")


def test_an_unlike_name_gets_the_list():
    with pytest.raises(PluginError, match=r"no retriever 'zzz'. Available: bm25, candidates"):
        plugins.load("refinery.retrievers", "zzz")


def test_an_attribute_outside_the_project_is_found(tmp_path, monkeypatch):
    (tmp_path / "my_lab_colbert.py").write_text("class ColBert: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert plugins.load("refinery.retrievers", "my_lab_colbert:ColBert").__name__ == "ColBert"


@pytest.mark.parametrize("name", ["no_such_lab:ColBert", "json:ColBert", ":ColBert", "json:"])
def test_an_outside_name_that_leads_nowhere_says_how_to_write_it(name):
    with pytest.raises(PluginError, match="cannot be loaded .* It should read module:attribute"):
        plugins.load("refinery.retrievers", name)
