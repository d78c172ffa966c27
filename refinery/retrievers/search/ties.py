"""The best hits of an engine that breaks ties as it likes."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Found = TypeVar("Found")


def with_ties(search: Callable[[int], Sequence[tuple[float, Found]]], k: int) -> Sequence[tuple[float, Found]]:
    """The `k` best (score, hit) that `search(limit)` finds, best first, and any that tie with the last of them, so that the choice
    between them is the caller's."""
    limit = 2 * k
    while len(found := search(limit)) == limit and found[k - 1][0] == found[-1][0]:
        limit *= 4
    return found
