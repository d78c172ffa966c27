"""Find texts with nearly the same words among many."""

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain
from sys import intern
from typing import Generic, TypeVar

from refinery.text import normalize_answer
from refinery.unspaced import pairs_apart

T = TypeVar("T")


class SimilarTexts(Generic[T]):
    """Items by their sets of words; two sets are similar if their Jaccard similarity is at least 0.8.

    Candidates are found by prefix filtering: similar sets share one of their rarest words (Chaudhuri et al., ICDE 2006). They are also of
    similar size. Word frequencies are counted again, and all items are sorted by them, whenever the number of items has doubled.
    """

    def __init__(self) -> None:
        self._items: list[tuple[tuple[str, ...], T]] = []
        self._count_at = 2
        self._frequency: dict[str, int] = {}  # of words that were in several items when they were last counted
        self._by_size: dict[int, dict[str, list[tuple[tuple[str, ...], T]]]] = {}

    def add(self, words: frozenset[str], item: T) -> None:
        """Add one item."""
        added = tuple(map(intern, words)), item  # a million texts share most words, and a set of them takes five times as much memory
        self._items.append(added)
        if len(self._items) < self._count_at:
            self._enter(added)
        else:
            self._count_again()

    def similar(self, words: frozenset[str]) -> Iterator[T]:
        """The items whose words are similar to these; an item may occur twice."""
        rarest = self._rarest(words)
        for size in range(-(-4 * len(words) // 5), 5 * len(words) // 4 + 1):
            with_word = self._by_size.get(size, {})
            shared_at_least = -(-4 * (len(words) + size) // 9)  # then the union is at most 5/4 of the shared words
            for others, item in (pair for word in rarest for pair in with_word.get(word, [])):
                if len(words.intersection(others)) >= shared_at_least:
                    yield item

    def _enter(self, added: tuple[tuple[str, ...], T]) -> None:
        with_word = self._by_size.setdefault(len(added[0]), {})
        for word in self._rarest(added[0]):
            with_word.setdefault(word, []).append(added)

    def _count_again(self) -> None:
        counts = Counter(chain.from_iterable(words for words, _ in self._items))
        self._frequency = {word: count for word, count in counts.items() if count > 1}
        self._by_size, self._count_at = {}, 2 * len(self._items)
        for added in self._items:
            self._enter(added)

    def _rarest(self, words: Collection[str]) -> list[str]:
        shared_at_least = -(-4 * len(words) // 5)
        return sorted(words, key=lambda word: (self._frequency.get(word, 0), word))[: len(words) - shared_at_least + 1]


def words_of(text: str) -> frozenset[str]:
    """The words of a text by which it is compared with others: normalized as answers are, pairs of letters in scripts without spaces."""
    return frozenset(pairs_apart(normalize_answer(text)).split())
