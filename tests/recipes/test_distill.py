"""The recipes for an endpoint of one's own: each can be read, and holds every part that its task needs."""

from pathlib import Path

import pytest

from distill.recipe import DistillRecipe
from refinery.runtime.recipe import load_recipe

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "recipes" / "distill").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_recipe_gives_its_command_and_has_what_its_task_needs(path):
    recipe = load_recipe(path, DistillRecipe)
    needs = set(recipe.label_task.needs(recipe.task_options()))
    assert {"target" if name == "target_endpoint" else name for name in recipe.model_dump(exclude_none=True)} >= needs
    assert f"\n#   refinery distill recipes/distill/{path.name}" in path.read_text(encoding="utf-8")
