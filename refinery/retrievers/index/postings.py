"""BM25 postings of passages in memory, or of a corpus of any size, in bounded memory.

The words of a corpus are counted part by part, and the counts of all parts are then joined a few words at a time. The postings, their
scores and their files are those of `bm25s` with its default method, that of Lucene.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from refinery.errors import RecordError
from refinery.passages.corpus import Corpus
from refinery.retrievers.index.postings_files import PASSAGES_FILE, SCORES_FILE, STARTS_FILE, write_vocabulary
from refinery.retrievers.index.word_counts import Part, Share, Tokenize, count_words, counts_of
from refinery.runtime.run.progress import Progress

PAIRS_AT_ONCE = 1 << 21  # pairs of a word and a passage; 48 bytes of memory each
_NUMBERS, _STARTS = "numbers.bin", "starts.bin"


@dataclass(frozen=True, slots=True)
class ScoredWords:
    """The number of each word of some passages. Word `i` has `scores[j]` in `passages[j]` for j from `starts[i]` to `starts[i + 1]`."""

    number_of: dict[str, int]
    starts: Any  # (words + 1,)
    passages: Any  # (pairs,)
    scores: Any  # (pairs,)


def score_words(words_of: list[list[str]], *, k1: float, b: float) -> ScoredWords:
    """Score the words of passages in memory."""
    counted = counts_of(words_of)
    frequencies = np.diff(counted.starts)
    idf, norm = _idf(frequencies, len(words_of)), _norm(counted.lengths, k1, b)
    scores = _scores(np.repeat(idf, frequencies), counted.counts, norm[counted.passages])
    return ScoredWords({word: number for number, word in enumerate(counted.vocabulary)}, counted.starts, counted.passages, scores)


def build_postings(corpus: Corpus, folder: Path, tokenize: Tokenize, share: Share, *, k1: float, b: float) -> None:
    """Write the BM25 index of a corpus into `folder`, reusing existing parts.

    `share` describes the counting of all words. Raises RecordError for a corpus without words.
    """
    parts = count_words(corpus, tokenize, share)
    vocabulary = {word: number for number, word in enumerate(sorted(_vocabulary(parts)))}
    if not vocabulary:
        raise RecordError(f"{folder}: the corpus holds no words to search. Check the title and text of its passages.")
    frequencies = np.zeros(len(vocabulary), dtype=np.int64)
    for part in parts:
        _number_words(part, vocabulary, frequencies)
    lengths, indptr = np.concatenate([part.lengths() for part in parts]), np.concatenate([[0], np.cumsum(frequencies)])
    write_vocabulary(folder, vocabulary)
    np.save(folder / STARTS_FILE, indptr)
    _write_scores(folder, parts, indptr, _idf(frequencies, len(lengths)), _norm(lengths, k1, b))
    shutil.rmtree(share.work)


def _idf(frequencies: Any, num_passages: int) -> Any:
    """(words,): how rare each word is, from the number of passages that have it."""
    return np.log(1 + (num_passages - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)


def _norm(lengths: Any, k1: float, b: float) -> Any:
    """(passages,): what a count is weighed against in each passage."""
    return k1 * (1 - b + b * lengths / lengths.mean())


def _scores(idf: Any, counts: Any, norm: Any) -> Any:
    """(pairs,): the score of a word in a passage, from the pair's three values."""
    return (idf * (counts / (norm + counts))).astype(np.float32)


def _vocabulary(parts: Sequence[Part]) -> set[str]:
    """The words of all parts, read one part after another: most words are in most parts."""
    words: set[str] = set()
    for part in parts:
        words.update(part.vocabulary())
    return words


def _number_words(part: Part, vocabulary: dict[str, int], frequencies: Any) -> None:
    """Write the position of each word of a part in the whole vocabulary, which ascend, and where its pairs start; add up its pairs.

    Both are read again piece by piece: maps of them for all parts would count as memory, and grow with the corpus.
    """
    words, starts = part.vocabulary(), part.starts()
    numbers = np.fromiter(map(vocabulary.__getitem__, words), dtype=np.int32, count=len(words))
    frequencies[numbers] += np.diff(starts)
    numbers.tofile(part.folder / _NUMBERS)
    starts.tofile(part.folder / _STARTS)


def _write_scores(folder: Path, parts: Sequence[Part], indptr: Any, idf: Any, norm: Any) -> None:
    """Write the score of every word in every passage that has it, word by word (CSC)."""
    ranges = list(_ranges(indptr))
    with (
        _array(folder / SCORES_FILE, np.float32, indptr[-1]) as data,
        _array(folder / PASSAGES_FILE, np.int32, indptr[-1]) as indices,
        Progress("score words", total=int(indptr[-1])) as progress,
    ):
        for (first, last), slices in zip(ranges, _slices(parts, ranges), strict=True):
            passages, counts = _joined(parts, slices, indptr[first : last + 1], first)
            idf_of_pairs = np.repeat(idf[first:last], np.diff(indptr[first : last + 1]))
            for at in range(0, len(passages), PAIRS_AT_ONCE):
                some = slice(at, at + PAIRS_AT_ONCE)
                _scores(idf_of_pairs[some], counts[some], norm[passages[some]]).tofile(data)
            passages.tofile(indices)
            progress.advance(len(passages))


def _ranges(indptr: Any) -> Iterator[tuple[int, int]]:
    """Consecutive words (first, last) with at most `PAIRS_AT_ONCE` pairs, or one word with more."""
    first, words = 0, len(indptr) - 1
    while first < words:
        last = max(int(np.searchsorted(indptr, indptr[first] + PAIRS_AT_ONCE, side="right")) - 1, first + 1)
        yield first, last
        first = last


def _slices(parts: Sequence[Part], ranges: Sequence[tuple[int, int]]) -> Any:
    """(ranges, parts, 2): which of its words, from the first to before the last, each part has in each range of the whole vocabulary."""
    bounds = [0, *(last for _, last in ranges)]
    ends = np.stack([np.searchsorted(np.fromfile(part.folder / _NUMBERS, dtype=np.int32), bounds) for part in parts], axis=1)
    return np.stack([ends[:-1], ends[1:]], axis=2)


def _joined(parts: Sequence[Part], slices: Any, indptr: Any, first: int) -> tuple[Any, Any]:
    """The pairs of the words from number `first` on: the passages, in order within each word, and the counts."""
    size = int(indptr[-1] - indptr[0])
    passages, counts = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)
    filled = indptr[:-1] - indptr[0]
    for part, (low, high) in zip(parts, slices.tolist(), strict=True):
        words = np.fromfile(part.folder / _NUMBERS, dtype=np.int32, count=high - low, offset=4 * low) - first
        starts = np.fromfile(part.folder / _STARTS, dtype=np.int64, count=high - low + 1, offset=8 * low)
        frequencies = np.diff(starts)
        places = np.repeat(filled[words] - (starts[:-1] - starts[0]), frequencies) + np.arange(starts[-1] - starts[0])
        passages[places], counts[places] = part.pairs(int(starts[0]), int(starts[-1]))
        filled[words] += frequencies
    return passages, counts


def _array(path: Path, dtype: Any, size: int) -> BinaryIO:
    """A new .npy file of one dimension, to which its content is to be appended. A memory map would count as memory."""
    file = path.open("wb")
    header = {"descr": npy.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": (int(size),)}
    npy.write_array_header_1_0(file, header)
    return file
