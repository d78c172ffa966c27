"""The recipes for any instruct model: each base of their table is planned from its shape, as the table says."""

import re
from pathlib import Path

import pytest
from helpers.chat_templates import FAMILIES
from helpers.decoder_families import FAMILIES as DECODED

from infer.recipe import InferRecipe
from refinery.llms.weights.shapes import config_of
from refinery.runtime.recipe import load_recipe
from train.launch.launch import Launch
from train.planning.memory import estimate
from train.recipe import TrainRecipe

FOLDER = Path(__file__).parents[2] / "recipes" / "instruct"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| `[\w-]+/", line)
]


def _name(row):
    return row[0].strip("`").rpartition("/")[2]


@pytest.mark.parametrize("row", [pytest.param(row, id=_name(row), marks=[pytest.mark.slow] if i % 3 else []) for i, row in enumerate(ROWS)])
def test_a_base_is_planned_as_the_table_says(row):
    base, size, tied, _, _, *planned = row
    for name, length, said in zip(("generator", "relevance"), (4096, 1024), planned, strict=True):
        recipe = load_recipe(FOLDER / "train" / f"{name}.yaml", TrainRecipe, [f"base={base.strip('`')}"])
        parameters, memory = estimate(recipe, Launch(1, "none"), length=length)
        assert f"{parameters.base / 1e9:.2f} B" == size
        assert f"{memory.total / 2**30:.1f} GiB" == said
    assert tied == ("yes" if config_of(base.strip("`")).tie_word_embeddings else "no")


def test_the_table_names_tests_that_exist():
    assert len(ROWS) == 8
    for _, _, _, family, template, *_ in ROWS:
        assert family.strip("`") in DECODED
        assert template.strip("`") in FAMILIES


@pytest.mark.parametrize("path", sorted(FOLDER.glob("infer/*.yaml")), ids=lambda path: path.stem)
def test_a_recipe_takes_any_base(path):
    recipe = load_recipe(path, InferRecipe, ["llm.base=owner/name"])
    assert recipe.model.base == "owner/name"
    assert f"\n#   refinery infer recipes/instruct/infer/{path.name}" in path.read_text(encoding="utf-8")
