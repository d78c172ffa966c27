"""Which of a question's right paths become rows: the likeliest, the shortest, or all that differ enough from each other."""

from collections.abc import Sequence
from typing import Literal

from refinery.contract.records import Step
from refinery.text import normalize_answer
from refinery.unspaced import pairs_apart

Path = Sequence[Step]
PathChoice = Literal["likeliest", "shortest", "all"]


def chosen_paths(paths: Sequence[Path], choice: PathChoice, *, most: int, most_alike: float) -> list[Path]:
    """Of `paths`, the likeliest of which comes first: that one, the likeliest of those with the fewest searches, or `most` that differ.

    Two paths differ if the Jaccard similarity of the words of their queries is at most `most_alike`.
    """
    if choice == "shortest":
        return [min(paths, key=len)]
    if choice == "likeliest":
        return [paths[0]]
    kept: list[Path] = []
    for path in paths:
        if len(kept) < most and all(_alikeness(path, other) <= most_alike for other in kept):
            kept.append(path)
    return kept


def _alikeness(one: Path, other: Path) -> float:
    first, second = _words(one), _words(other)
    return len(first & second) / len(first | second) if first | second else 1.0


def _words(path: Path) -> frozenset[str]:
    """What the path searches for; its answer is right, as all of them are."""
    return frozenset(word for step in path[:-1] for word in (step.action, *pairs_apart(normalize_answer(step.text)).split()))
