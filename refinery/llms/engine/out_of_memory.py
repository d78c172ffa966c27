"""What is left to do when a device has no memory for a batch: smaller batches, and at last an error for the one row that does not fit."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from refinery.errors import LLMError

Item = TypeVar("Item")
Result = TypeVar("Result")


def unless_out_of_memory(run: Callable[[], Result]) -> Result | None:
    """What `run` gives, or None, with all memory that torch keeps for later given back."""
    try:
        return run()
    except torch.OutOfMemoryError:
        pass  # left first: the error holds the batch's tensors
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def in_halves(run: Callable[[list[Item]], Sequence[Result]], items: list[Item]) -> list[Result | LLMError]:
    """What `run` gives each item; of half as many at a time where memory does not suffice. An item too large alone gets an error."""
    found = unless_out_of_memory(lambda: run(items))
    if found is not None:
        return list(found)
    if len(items) == 1:
        return [does_not_fit()]
    half = len(items) // 2
    return [*in_halves(run, items[:half]), *in_halves(run, items[half:])]


def does_not_fit() -> LLMError:
    """The error of one sequence for which all memory is too little."""
    return LLMError("the device has no memory left for this sequence alone. Give fewer or shorter passages, or lower kv_tokens.")
