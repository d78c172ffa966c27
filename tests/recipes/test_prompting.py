"""Recipes of re-thinking, MIGRES and the baselines: each can be read and gives its command; those that only prompt name an endpoint."""

from pathlib import Path

import pytest

from infer.recipe import InferRecipe
from refinery.questions.base import read_questions
from refinery.runtime.recipe import load_recipe

ROOT = Path(__file__).parents[2]
SYSTEMS = ("re_thinking", "migres", "baselines")
PATHS = sorted(path for system in SYSTEMS for path in (ROOT / "recipes" / system).glob("*.yaml") if path.stem != "reproduce")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recipe_gives_its_command_and_its_options_fit_its_decoder(path):
    recipe = load_recipe(path, InferRecipe)
    assert path.parent.name in (recipe.decoder, "baselines")
    assert (recipe.endpoint is None) == (recipe.decoder in ("self_rag", "self_consistency"))
    assert recipe.decoder_options(str(path))
    assert f"\n#   refinery infer recipes/{path.parent.name}/{path.name}" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_samples_questions_can_be_read(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    recipe = load_recipe(path, InferRecipe)
    if recipe.questions[0].parts[0] == "recipes":
        assert all(question.passages for question in read_questions(recipe.questions, reader=recipe.reader))
