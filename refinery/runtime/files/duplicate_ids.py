"""Find duplicates among many numbers, such as the hashes of texts, in little memory."""

from array import array
from collections import Counter
from typing import Any

# Up to this many are counted without numpy, whose import takes as long as a hundred calls.
_FEW = 50_000


def repeated(numbers: "array[int]") -> set[int]:
    """The numbers that occur more than once. Sorts the array in place if it is large."""
    if len(numbers) <= _FEW:
        return {number for number, count in Counter(numbers).items() if count > 1}
    ordered = _sorted(numbers)
    return set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())


def num_repetitions(numbers: "array[int]") -> int:
    """The number of repeated occurrences. Sorts the array in place if it is large."""
    if len(numbers) <= _FEW:
        return len(numbers) - len(set(numbers))
    ordered = _sorted(numbers)
    return int((ordered[1:] == ordered[:-1]).sum())


def _sorted(numbers: "array[int]") -> Any:
    """The numbers as an array of numpy over the same memory, sorted in place."""
    import numpy as np

    ordered = np.frombuffer(numbers, dtype=numbers.typecode)
    ordered.sort()
    return ordered
