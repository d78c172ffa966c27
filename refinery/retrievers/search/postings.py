"""The passages with the highest BM25 scores, from postings in memory or memory-mapped.

Scores are the sums of bm25s, to the bit: in the order of the query's words, in float32. What is faster is around them: the array of sums is
kept from search to search, a compiled loop of numpy adds to it, and where the frequent words cannot make a hit together, only the sums of
passages with a rarer word are looked at (MaxScore).
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from refinery.errors import RetrievalError
from refinery.retrievers.index.postings_files import PASSAGES_FILE, SCORES_FILE, STARTS_FILE

_LOOKED_AT = 2_000  # passages of the rarest words
_LONG = 4_096  # postings of a word that is remembered, with its highest score
_PASSAGES_PER_POSTING = 16  # that are compared one after another in the time of one that is looked up
_TINY = float(np.finfo(np.float32).tiny)
Search = tuple[list[int], int]  # the numbers of its words, and k
Found = list[tuple[int, float]]  # positions and scores


@dataclass(frozen=True, slots=True)
class _Word:
    """A word's passages, its score in each, and the highest of these."""

    passages: Any  # (postings,), ascending
    scores: Any  # (postings,)
    highest: float

    def add(self, sums: Any) -> None:
        """Add its scores to the sums of its passages."""
        np.add.at(sums, self.passages.astype(np.intp), self.scores)  # it is slower with other integers


class Postings:
    """Postings that are stored by word: word `i` has `scores[j]` in `passages[j]` for j from `starts[i]` to `starts[i + 1]`.

    Scores are float32. Several threads may search at once, which numpy lets run side by side. Raises RetrievalError for postings
    that no index has, but a damaged file may.
    """

    def __init__(self, *, starts: Any, passages: Any, scores: Any, num_passages: int) -> None:
        if len(passages) != len(scores):
            raise RetrievalError(f"the index has {len(passages):,} postings, but {len(scores):,} scores. Build it again.")
        # Without a sign, so that a negative position of a damaged file is beyond the sums, and does not count from their end.
        self._starts, self._passages, self._scores, self._num_passages = starts, passages.view(np.uint32), scores, num_passages
        self._threads = threading.local()
        self._long: dict[int, _Word] = {}

    def best(self, words: Sequence[int], k: int) -> Found:
        """The `k` best (position, score) with a positive score. Ties go to the first position. `words` may repeat a word."""
        of_query = [self._word(word) for word in words]
        sums = self._zeros()
        try:
            self._add(of_query, sums)
            found = _likely(sums, sorted(of_query, key=lambda word: len(word.passages)), k)
            scores = sums[found]
        finally:
            sums.fill(0)
        order = np.lexsort((found, -scores))[:k]
        return list(zip(found[order].tolist(), scores[order].tolist(), strict=True))

    def best_of_each(self, searches: Sequence[Search]) -> list[Found]:
        """The best of each search."""
        return [self.best(words, k) for words, k in searches]

    def _add(self, words: Sequence[_Word], sums: Any) -> None:
        """Add the scores of all words. Raises RetrievalError for a passage that the index does not have."""
        try:
            for word in words:
                word.add(sums)
        except IndexError:
            raise RetrievalError(
                f"the index has postings of passages that are not among its {self._num_passages:,}. Build it again."
            ) from None

    def _word(self, word: int) -> _Word:
        if known := self._long.get(word):
            return known
        some = slice(self._starts[word], self._starts[word + 1])
        passages, scores = self._passages[some], self._scores[some]
        found = _Word(passages, scores, float(scores.max(initial=0)))
        if len(passages) >= _LONG:
            self._long[word] = found
        return found

    def _zeros(self) -> Any:
        """(passages,): an array that is all zeros between searches, one for each thread."""
        if not hasattr(self._threads, "zeros"):
            self._threads.zeros = np.zeros(self._num_passages, dtype=np.float32)
        return self._threads.zeros


def open_postings(folder: Path, num_passages: int) -> Postings:
    """The memory-mapped postings of an index on disk."""
    # Slices of np.memmap itself would cost as much as the scoring.
    files = STARTS_FILE, PASSAGES_FILE, SCORES_FILE
    starts, found, scores = (np.asarray(np.load(folder / name, mmap_mode="r")) for name in files)
    return Postings(starts=starts, passages=found, scores=scores, num_passages=num_passages)


def _likely(sums: Any, rarest_first: Sequence[_Word], k: int) -> Any:
    """The passages that score what `k` passages do, the `k` best among them."""
    needed = max(_needed(sums, rarest_first, k), _TINY)
    essential, others = [], sum(word.highest for word in rarest_first) * (1 + len(rarest_first) * 2.0**-23)  # the sums are rounded
    for word in rarest_first:
        if others < needed:  # no passage without any of the words before this one can score what is needed
            break
        essential.append(word.passages)
        others -= word.highest
    if not 0 < sum(map(len, essential)) * _PASSAGES_PER_POSTING <= len(sums):
        return np.flatnonzero(sums >= needed)
    return np.unique(np.concatenate([passages[sums[passages] >= needed] for passages in essential]))


def _needed(sums: Any, rarest_first: Sequence[_Word], k: int) -> float:
    """A score that at least `k` passages have, or 0."""
    needed, looked_at = 0.0, 0
    for word in rarest_first:
        if len(word.passages) >= k:
            needed, looked_at = max(needed, _kth_at_least(sums[word.passages], k)), looked_at + len(word.passages)
        if looked_at >= _LOOKED_AT:
            break
    return needed


def _kth_at_least(scores: Any, k: int) -> float:
    """The k-th highest score, or the k-th highest of the maxima of about 8 k groups, which is lower and far faster to find."""
    rows = len(scores) // (8 * k)
    highest = scores[: len(scores) // rows * rows].reshape(rows, -1).max(axis=0) if rows > 1 else scores
    return float(np.partition(highest, -k)[-k])
