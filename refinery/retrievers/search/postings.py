"""The passages with the highest BM25 scores, from postings in memory or memory-mapped.

Scores are the sums of bm25s, to the bit: in the order of the query's words, in float32. What is faster is around them: the array of sums is
kept from search to search, places are added to as numpy's own integers, and the passages of the rarest words, which are the likely hits,
tell which score is needed, so that no others are sorted.
"""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

_ADDED_AT_ONCE = 1 << 15
_LOOKED_AT = 2_000  # passages of the rarest words
_TINY = float(np.finfo(np.float32).tiny)


class Postings:
    """Postings that are stored by word: word `i` has `scores[j]` in `passages[j]` for j from `starts[i]` to `starts[i + 1]`.

    Several threads may search at once, which numpy lets run side by side.
    """

    def __init__(self, *, starts: Any, passages: Any, scores: Any, num_passages: int) -> None:
        self._starts, self._passages, self._scores, self._num_passages = starts, passages, scores, num_passages
        self._threads = threading.local()

    def best(self, words: Sequence[int], k: int) -> list[tuple[int, float]]:
        """The `k` best (position, score) with a positive score. Ties go to the first position. `words` may repeat a word."""
        sums = self._zeros()
        try:
            for word in words:
                _add(sums, self._of(self._passages, word), self._of(self._scores, word))
            found = np.flatnonzero(sums >= max(self._needed(sums, words, k), _TINY))
            scores = sums[found]
        finally:
            sums.fill(0)
        order = np.lexsort((found, -scores))[:k]
        return list(zip(found[order].tolist(), scores[order].tolist(), strict=True))

    def _of(self, array: Any, word: int) -> Any:
        return array[self._starts[word] : self._starts[word + 1]]

    def _zeros(self) -> Any:
        """(passages,): an array that is all zeros between searches, one for each thread."""
        if not hasattr(self._threads, "zeros"):
            self._threads.zeros = np.zeros(self._num_passages, dtype=np.float32)
        return self._threads.zeros

    def _needed(self, sums: Any, words: Sequence[int], k: int) -> float:
        """A score that at least `k` passages have, or 0."""
        needed, looked_at = 0.0, 0
        for passages in sorted((self._of(self._passages, word) for word in set(words)), key=len):
            if len(passages) >= k:
                needed, looked_at = max(needed, _kth_at_least(sums[passages], k)), looked_at + len(passages)
            if looked_at >= _LOOKED_AT:
                break
        return needed


def _add(sums: Any, passages: Any, scores: Any) -> None:
    """Add scores to the sums of passages, a part at a time."""
    for start in range(0, len(passages), _ADDED_AT_ONCE):
        some = slice(start, start + _ADDED_AT_ONCE)
        np.add.at(sums, passages[some].astype(np.intp), scores[some])


def _kth_at_least(scores: Any, k: int) -> float:
    """The k-th highest score, or the k-th highest of the maxima of about 8 k groups, which is lower and far faster to find."""
    rows = len(scores) // (8 * k)
    highest = scores[: len(scores) // rows * rows].reshape(rows, -1).max(axis=0) if rows > 1 else scores
    return float(np.partition(highest, -k)[-k])
