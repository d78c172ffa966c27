"""Find texts with nearly the same words among many."""

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def _longest(word: str) -> Any:
    return -len(word), word


class SimilarTexts(Generic[T]):
    """Items by their sets of words; two sets are similar if their Jaccard similarity is at least 0.8.

    Candidates are found by prefix filtering: similar sets share one of their rarest words (Chaudhuri et al., ICDE 2006). `rareness` sorts
    the rarest words first; where frequencies are unknown, long words count as rare.
    """

    def __init__(self, rareness: Callable[[str], Any] = _longest) -> None:
        self._rareness = rareness
        self._with_word: dict[str, list[tuple[frozenset[str], T]]] = {}

    def add(self, words: frozenset[str], item: T) -> None:
        """Add one item."""
        for word in self._rarest(words):
            self._with_word.setdefault(word, []).append((words, item))

    def similar(self, words: frozenset[str]) -> Iterator[T]:
        """The items whose words are similar to these; one may come twice."""
        for word in self._rarest(words):
            for others, item in self._with_word.get(word, []):
                if 5 * len(words & others) >= 4 * len(words | others):
                    yield item

    def _rarest(self, words: frozenset[str]) -> list[str]:
        shared_at_least = -(-4 * len(words) // 5)
        return sorted(words, key=self._rareness)[: len(words) - shared_at_least + 1]
