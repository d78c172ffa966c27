"""Recovery when a device runs out of memory for a batch: try smaller batches, and finally give an error for a row that is too large."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from refinery.errors import LLMError

Item = TypeVar("Item")
Result = TypeVar("Result")


# Messages of CUDA, its libraries and other devices if torch has no type for the error; another process may hold the card.
_WORDS = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUSOLVER_STATUS_ALLOC_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device ran out of memory, whatever torch calls it."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(words.lower() in str(error).lower() for words in _WORDS)
    )


def memory_now() -> str:
    """A sentence about the device's free memory and that of other processes; empty without a CUDA device."""
    if not torch.cuda.is_available():
        return ""
    free, total = torch.cuda.mem_get_info()
    others = total - free - torch.cuda.memory_reserved()
    return f" {free / 2**30:.1f} of {total / 2**30:.1f} GiB are free, and other processes hold about {max(others, 0) / 2**30:.1f}."


def unless_out_of_memory(run: Callable[[], Result]) -> Result | None:
    """The result of `run`, or None when memory runs out. In that case all memory that torch has cached is released."""
    try:
        return run()
    except RuntimeError as error:  # left first: the error holds the batch's tensors
        if not is_out_of_memory(error):
            raise
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
    return LLMError(
        f"the device has no memory left for this sequence alone.{memory_now()} Give fewer or shorter passages, lower kv_tokens, or end "
        "what else runs there."
    )
