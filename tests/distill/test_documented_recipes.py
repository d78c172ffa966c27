"""The parts of recipes that the distill page shows are recipes."""

import re
from pathlib import Path

import pytest
import yaml

from distill.recipe import DistillRecipe
from refinery.runtime.recipe import build_recipe

PAGE = Path(__file__).parents[2] / "docs" / "distill.md"


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
def test_a_part_of_a_recipe_is_read(block):
    part = yaml.safe_load(block)
    recipe = build_recipe({"task": "decomposition", "questions": ["q.jsonl"], "output_dir": "run"} | part, DistillRecipe, where="page")
    assert recipe.model_fields_set >= part.keys()
