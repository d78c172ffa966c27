"""BM25 postings of a corpus of any size, in bounded memory.

`bm25s` scores and stores an index well, but builds it from the tokens of the whole corpus in memory. Here the words are counted part by
part, and the counts of all parts are then joined a few words at a time, to the matrix that `bm25s` searches.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from refinery.errors import RecordError
from refinery.passages.corpus import Corpus
from refinery.retrievers.index.word_counts import Part, Share, Tokenize, count_words
from refinery.retrievers.index.words import bm25s
from refinery.runtime.progress import Progress

PAIRS_AT_ONCE = 1 << 21  # pairs of a word and a passage; 48 bytes of memory each
_NUMBERS, _STARTS = "numbers.bin", "starts.bin"


def build_postings(corpus: Corpus, folder: Path, tokenize: Tokenize, share: Share, *, k1: float, b: float) -> None:
    """Write the BM25 index of a corpus into `folder`, reusing existing parts. The result equals `bm25s.BM25.index`.

    `share` describes the counting of all words. Raises RecordError for a corpus without words.
    """
    parts = count_words(corpus, tokenize, share)
    index = bm25s.BM25(k1=k1, b=b)
    index.nonoccurrence_array = None  # only for BM25 variants other than Lucene's
    index.vocab_dict = {word: number for number, word in enumerate(sorted(_vocabulary(parts)))}
    if not index.vocab_dict:
        raise RecordError(f"{folder}: the corpus holds no words to search. Check the title and text of its passages.")
    frequencies = np.zeros(len(index.vocab_dict), dtype=np.int64)
    for part in parts:
        _number_words(part, index.vocab_dict, frequencies)
    lengths, indptr = np.concatenate([part.lengths() for part in parts]), np.concatenate([[0], np.cumsum(frequencies)])
    # What is large is written after the rest, piece by piece.
    index.scores = {"data": np.empty(0, np.float32), "indices": np.empty(0, np.int32), "indptr": indptr, "num_docs": len(lengths)}
    index.save(folder, show_progress=False)
    idf = np.log(1 + (len(lengths) - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)
    _write_scores(folder, parts, indptr, idf, norm=k1 * (1 - b + b * lengths / lengths.mean()))
    shutil.rmtree(share.work)


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
    """Write the score of every word in every passage that has it, word by word (CSC): the BM25 variant that bm25s calls Lucene's."""
    ranges = list(_ranges(indptr))
    with (
        _array(folder / "data.csc.index.npy", np.float32, indptr[-1]) as data,
        _array(folder / "indices.csc.index.npy", np.int32, indptr[-1]) as indices,
        Progress("score words", total=int(indptr[-1])) as progress,
    ):
        for (first, last), slices in zip(ranges, _slices(parts, ranges), strict=True):
            passages, counts = _joined(parts, slices, indptr[first : last + 1], first)
            idf_of_pairs = np.repeat(idf[first:last], np.diff(indptr[first : last + 1]))
            for at in range(0, len(passages), PAIRS_AT_ONCE):
                some = slice(at, at + PAIRS_AT_ONCE)
                scores = idf_of_pairs[some] * (counts[some] / (norm[passages[some]] + counts[some]))
                scores.astype(np.float32).tofile(data)
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
