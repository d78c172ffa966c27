"""The rows that the tiny base checkpoint reads, and the recipes that mix them."""

import random
import re
from pathlib import Path

import pytest

from recipes.demo.base_model.pretrain import PretrainRecipe
from recipes.demo.base_model.pretrain_rows import ROW_WRITERS, FreshWorld
from refinery.demo.world.entities import common_world
from refinery.demo.world.questions import draw_questions, parse_question, with_years
from refinery.runtime.recipe import load_recipe

RECIPES = sorted((Path(__file__).parents[4] / "recipes" / "demo").glob("pretrain*.yaml"))
STATED = re.compile(r"first, (.+) (\d{4}) or (.+) (\d{4})\?")


def written(kind: str, seed: int):
    rng = random.Random(seed)
    return ROW_WRITERS[kind](rng, FreshWorld(rng, crowded=seed % 2 == 1))


@pytest.mark.parametrize("kind", ROW_WRITERS)
def test_a_row_trains_its_answers_and_ends_with_one(kind):
    for seed in range(5):
        segments = written(kind, seed)
        assert {segment.text for segment in segments if segment.kind == "control_token"} == {"</s>"}
        assert segments[-1].text == "</s>"
        assert all(segment.trained == (segment.kind != "prompt") for segment in segments)


@pytest.mark.parametrize("kind", ["comparison", "dating"])
def test_a_comparison_that_states_its_years_is_answered_by_the_earlier(kind):
    for seed in range(5):
        compared = 0
        stated: tuple[str, ...] = ()
        for segment in written(kind, seed):
            if found := STATED.search(segment.text):
                stated = found.groups()
            elif segment.trained and stated and segment.text != "</s>":
                first, year, second, other = stated
                assert segment.text == f" {first if year < other else second}"
                compared += 1
        assert compared


def test_a_comparison_with_its_years_is_a_comparison_of_the_same_things():
    for question in draw_questions(common_world(), random.Random(0), {"comparison": 50}):
        stated, asked = parse_question(with_years(question)), parse_question(question.text)
        assert stated.chain == asked.chain
        assert [name.rpartition(" ")[0] for name in stated.names] == list(asked.names)
        assert [name.rpartition(" ")[2] for name in stated.names] == [sub.answer for sub in question.decomposition]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_stage_mixes_kinds_of_rows_that_there_are(path):
    recipe = load_recipe(path, PretrainRecipe)
    assert set(recipe.row_kinds) <= set(ROW_WRITERS)
    assert sum(recipe.row_kinds.values()) == pytest.approx(1)
    assert recipe.start_from is None or f"{recipe.start_from.name}.yaml" in [other.name for other in RECIPES]
