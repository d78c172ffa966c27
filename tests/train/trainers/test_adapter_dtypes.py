"""In which dtype adapters multiply: in a bfloat16 run never in float32, which a GPU computes without tensor cores."""

from typing import Any

import pytest
import torch
from helpers.family_rows import recipe_values
from helpers.grpo_runs import grpo_values, trained_generator
from torch.utils._python_dispatch import TorchDispatchMode

from train.families.fused_layers import fused_layers
from train.families.model import build_model
from train.method import load_family
from train.recipe import TrainRecipe
from train.rows.data import training_records

RANK = 29  # of no other weight
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul")


class AdapterProducts(TorchDispatchMode):
    """While it is entered: the dtypes of matrix products with a side of `RANK`. A CPU's backward pass is in the same thread."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        if function._schema.name.removeprefix("aten::").rstrip("_") in PRODUCTS and any(RANK in tensor.shape for tensor in tensors):
            self.dtypes |= {tensor.dtype for tensor in tensors}
        return function(*args, **(kwargs or {}))


def trainer_of(recipe: TrainRecipe) -> Any:
    family = load_family(recipe)
    model, tokenizer = build_model(recipe)
    rows, _ = family.encode_rows(training_records(recipe), recipe, tokenizer)
    return family.build_trainer(model, tokenizer, rows, recipe)


def dtypes_of_a_run(values: dict[str, Any]) -> set[torch.dtype]:
    """Of two steps, the first with an evaluation and a checkpoint after it, and of a third after the run was resumed."""
    steps = {"dtype": "bfloat16", "lora_rank": RANK, "save_steps": 1, "eval_steps": 1, "eval_rows": 1, "gradient_checkpointing": False}
    recipe = TrainRecipe.model_validate(values | steps | {"max_steps": 2})
    trainer, products = trainer_of(recipe), AdapterProducts()
    with products:
        trainer.train()
    trainer = trainer_of(recipe.model_copy(update={"max_steps": 3}))
    with products:
        trainer.train(resume_from_checkpoint=True)
    assert {log["step"] for log in trainer.state.log_history if any(name.startswith("eval_") for name in log)} >= {1, 2, 3}
    return products.dtypes


@pytest.mark.parametrize("task", ["self_knowledge", "preference"])
def test_steps_evaluations_and_references_multiply_in_the_dtype_of_the_run(tiny_bases, tmp_path, task):
    sizes = {"per_device_train_batch_size": 2, "max_length": 200}
    values = recipe_values(tmp_path, task=task, base=tiny_bases["untied"], **sizes)
    assert dtypes_of_a_run(values | {"validation": values["data"]}) == {torch.bfloat16}


def test_rollouts_and_their_scoring_do_too(tiny_bases, tmp_path):
    generator = trained_generator(tmp_path, tiny_bases["tied"], max_steps=1)
    values = grpo_values(tmp_path, generator, grpo={"beta": 0.1, "num_generations": 2, "evaluate": ["path"]})
    values["rollouts"]["options"]["max_depth"] = 1
    assert dtypes_of_a_run(values | {"validation": [str(tmp_path / "held_out.jsonl")]}) == {torch.bfloat16}


def test_without_autocast_only_fused_adapters_do(tiny_bases, tmp_path):
    values = recipe_values(tmp_path, task="refinement", base=tiny_bases["untied"], dtype="bfloat16", lora_rank=RANK)
    model, _ = build_model(TrainRecipe.model_validate(values))
    found = {}
    for fused in (False, True):
        with AdapterProducts() as products, fused_layers(model, adapters=fused):
            model(input_ids=torch.arange(8)[None])
        found[fused] = products.dtypes
    assert found == {False: {torch.float32}, True: {torch.bfloat16}}
