"""Files that ship: where they are found, and recipes that name them from another folder."""

import logging
from pathlib import Path, PurePath

import pytest

from refinery.runtime.recipe import Recipe, load_recipe
from refinery.runtime.recipes import shipped_files as module
from refinery.runtime.recipes.shipped_files import found, shipped, shipped_files
from refinery.runtime.recipes.yaml_file import read_yaml

PROJECT = Path(__file__).parents[4]
BM25 = "recipes/retrieval/bm25.yaml"


class Runs(Recipe):
    questions: list[Path]
    base: str
    note: str = ""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Tests run in an empty folder, and each is told anew what ships."""
    monkeypatch.chdir(tmp_path)
    module._say_once.cache_clear()


def write_recipe(**values) -> Path:
    path = Path("own.yaml")
    path.write_text("\n".join(f"{key}: {value}" for key, value in values.items()))
    return path


def test_a_checkout_has_recipes_beside_the_package():
    assert shipped(BM25) == PROJECT / BM25


def test_a_wheel_has_them_inside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PACKAGE", tmp_path / "refinery")
    packaged = tmp_path / "refinery" / BM25
    packaged.parent.mkdir(parents=True)
    packaged.write_text("name: bm25")
    assert shipped(BM25) == packaged
    assert shipped_files() == [PurePath(BM25)]


def test_every_recipe_and_accelerate_file_ships():
    names = {str(file) for file in shipped_files()}
    assert {BM25, "accelerate_configs/ddp.yaml", "recipes/sample/data/hotpotqa/test.json", "recipes/rq_rag/README.md"} <= names


def test_a_recipe_that_is_not_here_is_the_one_that_ships_and_the_log_says_so_once(caplog):
    caplog.set_level(logging.INFO)
    assert read_yaml(BM25) == read_yaml(PROJECT / BM25)
    assert caplog.messages == [f"{BM25} is not in the working directory: using the shipped file, {PROJECT / BM25}"]


def test_a_file_of_that_name_that_is_here_comes_first():
    Path(BM25).parent.mkdir(parents=True)
    Path(BM25).write_text("name: mine")
    assert read_yaml(BM25) == {"name": "mine"}


@pytest.mark.parametrize("path", ["recipes/absent.yaml", "refinery/demo", "runs/recipes/x", "recipes/../pyproject.toml", f"/{BM25}"])
def test_what_does_not_ship_is_left_as_it_is(path):
    assert found(path) == Path(path)


def test_paths_in_a_recipe_are_found_as_the_recipe_is():
    data = "recipes/sample/data/hotpotqa/test.json"
    own = write_recipe(questions=f"[{data}, mine.jsonl]", base="refinery/demo/checkpoint", note="recipes/sample said so")
    recipe = load_recipe(own, Runs)
    assert recipe.questions == [PROJECT / data, Path("mine.jsonl")]
    assert (recipe.base, recipe.note) == (str(PROJECT / "refinery/demo/checkpoint"), "recipes/sample said so")


def test_an_override_may_name_a_shipped_file(monkeypatch):
    own = write_recipe(questions="[mine.jsonl]", base="x/y")
    assert load_recipe(own, Runs, ["base=refinery/demo/checkpoint"]).base == str(PROJECT / "refinery/demo/checkpoint")
