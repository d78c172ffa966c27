"""In which dtype adapters multiply: in a bfloat16 run never in float32, which costs a GPU without tensor cores 40% of a step."""

from collections import Counter
from typing import Any

import pytest
import torch
from helpers.family_rows import ROWS, recipe_values
from helpers.grpo_runs import grpo_values, trained_generator
from torch.utils._python_dispatch import TorchDispatchMode

from refinery.contract.records import write_records
from train.recipe import TrainRecipe
from train.run import run

SEEN = set()
RANK = 29  # of no other tensor
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul")


class AdapterProducts(TorchDispatchMode):
    """Counts, while it is entered, matrix products with a side of `RANK`, by dtype. A CPU's backward pass is in the same thread."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: Counter[torch.dtype] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        if function._schema.name.removeprefix("aten::").rstrip("_") in PRODUCTS and any(RANK in tensor.shape for tensor in tensors):
            self.dtypes.update({tensor.dtype for tensor in tensors})
            if torch.float32 in {tensor.dtype for tensor in tensors}:
                import traceback

                st = [
                    f"{f.filename[-40:]}:{f.lineno} {f.name}"
                    for f in traceback.extract_stack()
                    if "site-packages/torch" not in f.filename and "_pytest" not in f.filename and "pluggy" not in f.filename
                ]
                key = " > ".join(st[-22:])
                if key not in SEEN:
                    SEEN.add(key)
                    open("/tmp/wt_scratch/h43t/seen.txt", "a").write(
                        function._schema.name + str([tuple(t.shape) for t in tensors]) + key + "\n"
                    )
        return function(*args, **(kwargs or {}))


class Stop(KeyboardInterrupt):
    """Ends a run as a kill does."""


def dtypes_of(recipe: TrainRecipe, *, resume: bool = False) -> set[torch.dtype]:
    with AdapterProducts() as products:
        run(recipe, resume=resume)
    return set(products.dtypes)


BFLOAT16 = {"dtype": "bfloat16", "lora_rank": RANK, "save_steps": 1, "eval_steps": 1, "gradient_checkpointing": False}


@pytest.mark.parametrize("task", ["refinement", "preference"])
def test_imitation_and_preferences_multiply_in_the_runs_dtype(tiny_bases, tmp_path, task):
    values = recipe_values(
        tmp_path, task=task, base=tiny_bases["untied"], **BFLOAT16, max_steps=2, per_device_train_batch_size=2, max_length=200
    )
    recipe = TrainRecipe.model_validate(values | {"validation": values["data"]})
    print(dtypes_of(recipe))


def test_grpo(tiny_bases, tmp_path):
    generator = trained_generator(tmp_path, tiny_bases["tied"])
    recipe = TrainRecipe.model_validate(
        grpo_values(tmp_path, generator, **BFLOAT16, grpo={"beta": 0.1})
        | {"output_dir": tmp_path / "run", "validation": [str(tmp_path / "held_out.jsonl")]}
    )
    print(dtypes_of(recipe))
