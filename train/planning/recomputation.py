"""`gradient_checkpointing: auto`: as few layers as memory asks for are computed again in the backward pass.

Recomputing all layers costs about a third of a training step. Where activations fit, none is; where they half fit, the first layers are:
the backward pass reaches them when it has released the others.
"""

from collections.abc import Sequence
from typing import Any

from refinery.errors import RefineryError
from refinery.llms.weights.device import free_memory, own_device
from refinery.runtime.run.process_group import map_over_processes
from refinery.runtime.run.process_rank import num_processes
from train.launch.launch import Launch
from train.method import method_of
from train.planning.memory import estimate, host_memory
from train.recipe import TrainRecipe
from train.rows.length_filter import num_tokens

_STEPS = 8  # shares of layers that are considered, in eighths
# What a plan leaves out: the CUDA context, and what the allocator loses to fragments (tests/train/planning/test_gpu_memory.py).
_BESIDE, _FRAGMENTS = 2**30, 1.1


def with_recomputation(recipe: TrainRecipe, launch: Launch, rows: Sequence[Any]) -> TrainRecipe:
    """Collective: the recipe with `auto` decided for these rows and the memory that is free now, the same in every process."""
    if recipe.gradient_checkpointing != "auto":
        return recipe
    if "recomputes" in launch.traits:
        return with_share(recipe, 0)
    if method_of(recipe).plan:  # rollouts hold keys and values beside what this plan knows
        return with_share(recipe, 1)
    free = min(map_over_processes(lambda _: free_memory(own_device()), range(num_processes())))
    length = recipe.max_length if recipe.packing else max(map(num_tokens, rows))
    try:
        share = needed_share(recipe, launch, length=length, target_length=_longest_target(recipe, rows), free=free)
    except RefineryError:  # a family without a plan
        share = 1.0
    return with_share(recipe, share)


def needed_share(
    recipe: TrainRecipe, launch: Launch, *, length: int, target_length: int = 0, free: float, on_gpu: bool | None = None
) -> float:
    """The smallest share of layers to recompute with which a batch of rows of `length` tokens needs no more than `free` bytes; else 1.

    `on_gpu` says what the bytes are of, by default of this process's own device.
    """
    on_gpu = own_device() != "cpu" if on_gpu is None else on_gpu
    for step in range(_STEPS):
        tried = with_share(recipe, step / _STEPS)
        parameters, memory = estimate(tried, launch, length=length, target_length=target_length)
        without = host_memory(tried, launch, parameters, memory).without_gpu
        if (_FRAGMENTS * memory.total + _BESIDE if on_gpu else without) <= free:
            return step / _STEPS
    return 1.0


def with_share(recipe: TrainRecipe, share: float) -> TrainRecipe:
    """The recipe with this share of layers recomputed."""
    return recipe.model_copy(update={"gradient_checkpointing": share if 0 < share < 1 else bool(share)})


def _longest_target(recipe: TrainRecipe, rows: Sequence[Any]) -> int:
    return max(len(row.labels) for row in rows) if recipe.family == "seq2seq" else 0
