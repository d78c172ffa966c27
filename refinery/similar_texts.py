"""Find texts with nearly the same words among many."""

from collections.abc import Callable, Iterator
from sys import intern
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def _longest(word: str) -> Any:
    return -len(word), word


class SimilarTexts(Generic[T]):
    """Items by their sets of words; two sets are similar if their Jaccard similarity is at least 0.8.

    Candidates are found by prefix filtering: similar sets share one of their rarest words (Chaudhuri et al., ICDE 2006). They are also of
    similar size. `rareness` sorts the rarest words first; where frequencies are unknown, long words count as rare.
    """

    def __init__(self, rareness: Callable[[str], Any] = _longest) -> None:
        self._rareness = rareness
        self._by_size: dict[int, dict[str, list[tuple[tuple[str, ...], T]]]] = {}

    def add(self, words: frozenset[str], item: T) -> None:
        """Add one item."""
        with_word = self._by_size.setdefault(len(words), {})
        added = tuple(map(intern, words)), item  # a million texts share most words, and a set of them takes five times as much memory
        for word in self._rarest(words):
            with_word.setdefault(intern(word), []).append(added)

    def similar(self, words: frozenset[str]) -> Iterator[T]:
        """The items whose words are similar to these; one may come twice."""
        rarest = self._rarest(words)
        for size in range(-(-4 * len(words) // 5), 5 * len(words) // 4 + 1):
            with_word = self._by_size.get(size, {})
            shared_at_least = -(-4 * (len(words) + size) // 9)  # then the union is at most 5/4 of what is shared
            for others, item in (pair for word in rarest for pair in with_word.get(word, [])):
                if len(words.intersection(others)) >= shared_at_least:
                    yield item

    def _rarest(self, words: frozenset[str]) -> list[str]:
        shared_at_least = -(-4 * len(words) // 5)
        return sorted(words, key=self._rareness)[: len(words) - shared_at_least + 1]
