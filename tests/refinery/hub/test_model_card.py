"""The commands on a model card: each recipe in them is one that infer accepts, each program in them runs."""

import re

import pytest
import yaml

from infer.recipe import InferRecipe
from refinery.hub.model_card import use_lines
from refinery.tasks.base import load_task

RECIPE = {"family": "causal", "base": "some/base", "format": "consistent", "system_prompt": "rq_rag_short_answer"}


def text_of(repository="me/mine", **recipe):
    return "\n".join(use_lines(load_task(recipe["task"]).card(RECIPE | recipe), repository))


@pytest.mark.parametrize("task", ["refinement", "preference", "selection", "self_knowledge", "relevance", "decomposition"])
def test_the_loop_is_a_recipe_that_infer_accepts(task):
    values = yaml.safe_load(re.search(r"loop.yaml <<'END'\n(.*?)\nEND\n", text_of(task=task, strategy="lora"), re.DOTALL)[1])
    recipe = InferRecipe.model_validate(values)
    assert recipe.decoder_options("loop.yaml")
    own = recipe.sub_models.get(task)
    assert "me/mine" in (recipe.llm.base, recipe.llm.adapters.get(task), own and own.base)


@pytest.mark.parametrize("task", ["self_knowledge", "relevance", "selection", "decomposition", "traces"])
def test_a_sub_model_alone_is_a_program_that_runs(task, tiny_bases, capsys):
    program = re.search(r"python - <<'END'\n(.*?)\nEND", text_of(str(tiny_bases["tied"]), task=task, strategy="full"), re.DOTALL)[1]
    exec(compile(program, "card", "exec"), {})
    assert capsys.readouterr().out.strip() or task in ("decomposition", "traces")  # a random model may write nothing


def test_a_whole_sub_model_has_no_place_beside_adapters():
    assert "loop.yaml" not in text_of(task="relevance", strategy="full")
