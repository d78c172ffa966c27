"""What does not work together is refused when the recipe is read, or when the launch is known, in one line that says what to use."""

from pathlib import Path

import pytest

from refinery.errors import RecipeError
from refinery.runtime.recipe import build_recipe
from train.recipe import TrainRecipe
from train.support import REFUSALS, check_support, support_table

README = Path(__file__).parents[2] / "accelerate_configs" / "README.md"


def values(**changes) -> dict:
    return {"task": "refinement", "base": "x", "data": ["x"], "output_dir": "x", "learning_rate": 1e-4} | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float16", "strategy": "full"}, "dtype: float16 with strategy: full.*: refused, because .* Use dtype: bfloat16"),
        ({"dtype": "float16", "family": "seq2seq"}, "T5 overflows to NaN in it"),
        ({"dtype": "float16", "task": "preference"}, "the others are not tested"),
        ({"strategy": "qlora", "family": "seq2seq"}, "strategy: qlora with family: seq2seq or classifier: refused"),
        ({"strategy": "dora", "family": "classifier", "task": "relevance"}, "Use strategy: lora"),
        ({"strategy": "alora"}, "strategy: alora with task: refinement: refused"),
        ({"strategy": "alora", "task": "decomposition"}, "decoded token by token"),
        ({"strategy": "alora", "task": "traces"}, "decoded token by token"),
        ({"strategy": "dora", "task": "relevance"}, "PEFT refuses DoRA adapters in a mixed batch. Use strategy: lora or alora"),
        ({"strategy": "alora", "task": "relevance", "packing": True}, "activated once per row"),
        ({"packing": True, "family": "seq2seq"}, "Use train_sampling_strategy: group_by_length"),
        ({"dtype": "float32", "attn_implementation": "flash_attention_2"}, "Use attn_implementation: sdpa"),
    ],
)
def test_a_recipe_that_cannot_work_is_refused_in_one_line(changes, message):
    with pytest.raises(RecipeError, match=message) as caught:
        build_recipe(values(**changes), TrainRecipe, where="r.yaml")
    assert str(caught.value).startswith("r.yaml: ")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("changes", "launch", "message"),
    [
        ({"strategy": "qlora"}, "zero3", "train garbage without an error"),
        ({"strategy": "qlora"}, "fsdp2", "a 7B base takes 4 GB"),
        ({"strategy": "dora"}, "zero3", "zero2.yaml"),
        ({"packing": True, "strategy": "full"}, "context_parallel", "ranges of positions"),
        ({"strategy": "lora"}, "context_parallel", "trl #4314"),
        ({"gradient_checkpointing": True}, "recomputes", "Use gradient_checkpointing: auto"),
    ],
)
def test_a_launch_that_cannot_work_is_refused(changes, launch, message):
    recipe = TrainRecipe.model_validate(values(**changes))
    with pytest.raises(RecipeError, match=message):
        check_support(recipe, launch={launch})


@pytest.mark.parametrize("strategy", ["full", "lora", "qlora", "dora"])
@pytest.mark.parametrize("launch", ["none", "ddp", "zero2"])
def test_every_generator_strategy_runs_where_processes_hold_the_whole_model(strategy, launch):
    assert check_support(TrainRecipe.model_validate(values(strategy=strategy)), launch={launch}) is None


def test_the_table_that_users_read_is_the_list_that_is_checked():
    assert support_table() in README.read_text(encoding="utf-8")
    assert len(support_table().splitlines()) == len(REFUSALS) + 2
