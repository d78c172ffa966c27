import pytest

from infer.recipe import InferRecipe, PipelineRecipe, pipeline_recipe
from refinery.errors import RecipeError
from refinery.llms.build import ModelConfig
from refinery.llms.served.endpoint import EndpointConfig
from refinery.runtime.recipe import build_recipe

PIPELINE = {"decoder": "direct"}
REST = PIPELINE | {"questions": ["questions.jsonl"], "output_dir": "run"}
LLM, ENDPOINT = {"llm": {"base": "model"}}, {"endpoint": {"model": "gpt", "base_url": "http://127.0.0.1:1/v1"}}


@pytest.mark.parametrize(("values", "config"), [(LLM, ModelConfig), (ENDPOINT, EndpointConfig)])
def test_the_model_is_on_this_machine_or_behind_an_endpoint(values, config):
    assert isinstance(build_recipe(REST | values, InferRecipe, where="r").model, config)


@pytest.mark.parametrize("values", [{}, LLM | ENDPOINT, {"llm": None, "endpoint": None}], ids=["neither", "both", "neither, written out"])
def test_exactly_one_of_the_two_is_named(values):
    with pytest.raises(RecipeError, match="^r: endpoint: .*name the model by `llm` .* or by `endpoint` .*, one of the two") as raised:
        build_recipe(REST | values, InferRecipe, where="r")
    assert "\n" not in str(raised.value)


def test_a_model_that_is_itself_wrong_is_one_line():
    with pytest.raises(RecipeError) as raised:
        build_recipe(REST | {"llm": {"base": 3}}, InferRecipe, where="r")
    assert str(raised.value) == "r: llm.base: Input should be a valid string (got 3)."


def test_a_recipe_comes_back_from_its_own_dump():
    recipe = build_recipe(REST | ENDPOINT, InferRecipe, where="r")
    assert build_recipe(recipe.model_dump(mode="json"), InferRecipe, where="r") == recipe


@pytest.mark.parametrize("role", ["../relevance", "a.b", "", "a b"])
@pytest.mark.parametrize(
    "values", [lambda role: {"llm": {"base": "m", "adapters": {role: "a"}}}, lambda role: LLM | {"sub_models": {role: {"base": "m"}}}]
)
def test_a_role_that_cannot_name_a_part_of_a_model_is_refused(values, role):
    with pytest.raises(RecipeError, match="String should match pattern"):
        build_recipe(REST | values(role), InferRecipe, where="r")


def test_a_pipeline_is_the_same_whether_a_run_stands_in_its_recipe_or_not():
    assert pipeline_recipe(REST | LLM | {"limit": 3}, where="r") == build_recipe(PIPELINE | LLM, PipelineRecipe, where="r")


def test_an_unknown_key_of_a_pipeline_is_told_with_its_recipe():
    with pytest.raises(RecipeError, match="^r.yaml: passages_per_qery: unknown key. Did you mean 'passages_per_query'"):
        pipeline_recipe(REST | LLM | {"passages_per_qery": 3}, where="r.yaml")
