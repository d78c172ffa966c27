"""BM25 postings of a corpus of any size, in bounded memory.

`bm25s` scores and stores an index well, but builds it from the tokens of the whole corpus in memory. Here the corpus is read in parts.
Each part's counts are one file, so that a stopped build can be continued. At the end the parts become the matrix that `bm25s` searches.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from numpy.lib.format import open_memmap

from refinery.contract.records import Passage
from refinery.passages.corpus import batches, searched_text
from refinery.runtime.progress import Progress


def build_postings(
    passages: Sequence[Passage],
    folder: Path,
    tokenize: Callable[[list[str]], list[list[str]]],
    *,
    k1: float,
    b: float,
    passages_per_part: int,
) -> None:
    """Write the BM25 index of `passages` into `folder`, reusing existing parts. The result equals `bm25s.BM25.index`."""
    work = folder / "parts"
    work.mkdir(parents=True, exist_ok=True)
    parts: list[Path] = []
    start = 0
    while (part := work / f"{start:010d}.npz").exists():
        parts.append(part)
        start += len(_read_part(part).lengths)
    with Progress("index words", total=len(passages)) as progress:
        progress.advance(start)
        for batch in batches(passages, start=start, most=passages_per_part):
            parts.append(work / f"{start:010d}.npz")
            _write_part(tokenize([searched_text(passage) for passage in batch]), parts[-1])
            start += len(batch)
            progress.advance(len(batch))
    index = bm25s.BM25(k1=k1, b=b)
    index.nonoccurrence_array = None  # only for BM25 variants other than Lucene's
    index.vocab_dict, frequencies, lengths = _count(parts)
    index.scores = _lay_out(parts, work, index.vocab_dict, frequencies, lengths, k1=k1, b=b)
    index.save(folder, show_progress=False)
    shutil.rmtree(work)


@dataclass(frozen=True, slots=True)
class _Part:
    """Counts of consecutive passages: word `words[i]` occurs `counts[i]` times in passage `passages[i]` of the part."""

    vocabulary: list[str]
    lengths: Any  # (passages of the part,): words, repetitions included
    passages: Any  # (pairs,)
    words: Any  # (pairs,): positions in `vocabulary`
    counts: Any  # (pairs,)


def _write_part(words_of: list[list[str]], path: Path) -> None:
    vocabulary = sorted(set(chain.from_iterable(words_of)))
    position = {word: number for number, word in enumerate(vocabulary)}
    lengths = np.array([len(words) for words in words_of], dtype=np.int32)
    words = np.fromiter((position[word] for word in chain.from_iterable(words_of)), dtype=np.int64, count=int(lengths.sum()))
    size = max(len(vocabulary), 1)
    pairs, counts = np.unique(np.repeat(np.arange(len(words_of)), lengths) * size + words, return_counts=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez(
            file,
            vocabulary=np.frombuffer(json.dumps(vocabulary).encode(), dtype=np.uint8),
            lengths=lengths,
            passages=(pairs // size).astype(np.int32),
            words=(pairs % size).astype(np.int32),
            counts=counts.astype(np.int32),
        )
    partial.replace(path)


def _read_part(path: Path) -> _Part:
    with np.load(path, allow_pickle=False) as arrays:
        values = {name: arrays[name] for name in ("lengths", "passages", "words", "counts")}
        return _Part(json.loads(arrays["vocabulary"].tobytes()), **values)


def _count(parts: Sequence[Path]) -> tuple[dict[str, int], Any, Any]:
    """Every word's position in the index, the number of passages it occurs in, and every passage's length in words."""
    vocabulary: dict[str, int] = {}
    frequencies = np.zeros(0, dtype=np.int64)
    lengths = []
    for path in parts:
        part = _read_part(path)
        positions = np.array([vocabulary.setdefault(word, len(vocabulary)) for word in part.vocabulary], dtype=np.int64)
        frequencies = np.concatenate([frequencies, np.zeros(len(vocabulary) - len(frequencies), dtype=np.int64)])
        frequencies[positions] += np.bincount(part.words, minlength=len(positions))
        lengths.append(part.lengths)
    return vocabulary, frequencies, np.concatenate(lengths)


def _lay_out(
    parts: Sequence[Path], work: Path, vocabulary: dict[str, int], frequencies: Any, lengths: Any, *, k1: float, b: float
) -> dict[str, Any]:
    """Write the score of every word in every passage that has it, word by word (CSC): the BM25 variant that bm25s calls Lucene's."""
    indptr = np.concatenate([[0], np.cumsum(frequencies)])
    data = open_memmap(work / "data.npy", mode="w+", dtype=np.float32, shape=(int(indptr[-1]),))
    indices = open_memmap(work / "indices.npy", mode="w+", dtype=np.int32, shape=data.shape)
    idf = np.log(1 + (len(lengths) - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)
    norm = k1 * (1 - b + b * lengths / lengths.mean())
    filled, start = indptr[:-1].copy(), 0
    for path in parts:
        part = _read_part(path)
        by_word = np.argsort(part.words, kind="stable")  # within a word, passages stay in order
        local, first, counts = np.unique(part.words[by_word], return_index=True, return_counts=True)
        positions = np.array([vocabulary[part.vocabulary[word]] for word in local], dtype=np.int64)
        places = np.repeat(filled[positions] - first, counts) + np.arange(len(by_word))
        filled[positions] += counts
        passages, times = part.passages[by_word] + start, part.counts[by_word]
        data[places] = np.repeat(idf[positions], counts) * (times / (norm[passages] + times))
        indices[places] = passages
        start += len(part.lengths)
    return {"data": data, "indices": indices, "indptr": indptr, "num_docs": len(lengths)}
