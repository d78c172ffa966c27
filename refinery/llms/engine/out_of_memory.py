"""What to do when a device runs out of memory for a batch: try smaller batches, and finally raise an error for a row that is too large."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from refinery.errors import LLMError

Item = TypeVar("Item")
Result = TypeVar("Result")


def unless_out_of_memory(run: Callable[[], Result]) -> Result | None:
    """The result of `run`, or None when memory runs out. In that case all memory that torch has cached is released."""
    try:
        return run()
    except torch.OutOfMemoryError:
        pass  # left first: the error holds the batch's tensors
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def in_halves(run: Callable[[list[Item]], Sequence[Result]], items: list[Item]) -> list[Result | LLMError]:
    """The result of `run` for each item, with batches halved when memory runs out. An item that does not fit alone gets an error."""
    found = unless_out_of_memory(lambda: run(items))
    if found is not None:
        return list(found)
    if len(items) == 1:
        return [does_not_fit()]
    half = len(items) // 2
    return [*in_halves(run, items[:half]), *in_halves(run, items[half:])]


def does_not_fit() -> LLMError:
    """The error for one sequence that does not fit in memory alone."""
    return LLMError("the device has no memory left for this sequence alone. Give fewer or shorter passages, or lower kv_tokens.")
