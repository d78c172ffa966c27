"""Sample from groups as evenly as possible, always the same for the same ids."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from refinery.runtime.files.fingerprint import id_number

T = TypeVar("T")


def even_sample(items: Sequence[T], size: int, *, id_of: Callable[[T], str], group_of: Callable[[T], str]) -> list[T]:
    """`size` of the items, in their order: one of each group, then a second one of each, and so on, chosen by hashes.

    A smaller sample is part of a larger one, so a pilot's replies are used again.
    """
    drawn: Counter[str] = Counter()
    turns: list[tuple[int, int, int]] = []
    for position in sorted(range(len(items)), key=lambda position: id_number(f"sample {id_of(items[position])}")):
        group = group_of(items[position])
        turns.append((drawn[group], id_number(f"sample {group}"), position))
        drawn[group] += 1
    return [items[position] for position in sorted(position for _, _, position in sorted(turns)[:size])]
