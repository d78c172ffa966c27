"""BM25 (bm25s) over a corpus in memory, or over an index on disk. Title and text are indexed together.

Passages and queries share one tokenizer. An index stores the tokens of a test sentence and is refused when these have changed.
"""

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from bm25s.tokenization import Tokenizer as BM25sTokenizer
from pydantic import Field

from refinery.contract.records import Passage, Question
from refinery.errors import RecordError
from refinery.passages.corpus import corpus_hash, searched_text
from refinery.retrievers.base import Hit, Indexing, IndexOptions, Retriever, RetrieverConfig, RetrieverPlugin, corpus_in_memory
from refinery.retrievers.index.manifest import open_index
from refinery.retrievers.index.postings import build_postings
from refinery.retrievers.index.words_probe import check_probe, write_probe
from refinery.runtime.batching import Batcher, in_thread
from refinery.runtime.fingerprint import text_fingerprint
from refinery.runtime.recipe import Recipe

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it logs every index it builds, and sets its level itself

# Searching fewer passages takes at most a few milliseconds, less than moving the search to a thread off the event loop.
_SEARCHED_AT_ONCE = 100_000
_WORD = re.compile(r"\b\w\w+\b")
_MOST_WORDS = 1_024  # of a query, like Lucene's maxClauseCount
_PASSAGES_PER_PART = 20_000  # tokenized at once; bounds a build's memory


class Options(IndexOptions):
    """BM25's parameters and how words are normalized. All of them are part of an index."""

    k1: float = Field(default=0.9, description="pyserini's default, used by the papers' BM25 baselines", ge=0)
    b: float = Field(default=0.4, description="pyserini's", ge=0, le=1)
    stemmer: str | None = Field(default="porter", description="a Snowball algorithm, or null; pyserini uses Porter")
    stopwords: str | None = Field(default="en", description="the language whose stop words bm25s leaves out, or null")


class Bm25(Retriever):
    """BM25 with pyserini's k1 = 0.9 and b = 0.4 by default, the setting of the papers' BM25 baselines."""

    def __init__(self, passages: Sequence[Passage], options: Options | None = None) -> None:
        options = options or Options()
        if not passages:
            raise RecordError("retriever bm25: the corpus is empty. Set retriever.passages to a passages.jsonl.")
        index = bm25s.BM25(k1=options.k1, b=options.b)
        words = Tokenizer(options)([searched_text(passage) for passage in passages])
        if not any(words):
            raise RecordError("retriever bm25: the corpus holds no words to search. Check the title and text of its passages.")
        index.index(words, show_progress=False)
        self._set(index, passages, options, corpus_hash(passages))

    @classmethod
    def open(cls, folder: Path, options: Options) -> "Bm25":
        """A memory-mapped index that `build_index` made. Raises RetrievalError when it has changed."""
        passages, manifest = open_index(folder, "bm25", options)
        check_probe(folder, lambda text: Tokenizer(options)([text])[0])
        retriever = cls.__new__(cls)
        index = bm25s.BM25.load(folder, mmap=True)
        # Still memory-mapped, but slices of np.memmap itself would cost as much as the scoring.
        index.scores |= {name: np.asarray(index.scores[name]) for name in ("data", "indices", "indptr")}
        retriever._set(index, passages, options, manifest.corpus_hash)
        return retriever

    def _set(self, index: bm25s.BM25, passages: Sequence[Passage], options: Options, corpus: str) -> None:
        self._index, self._passages, self._tokenize = index, passages, Tokenizer(options)
        self.corpus_hash = corpus
        self.revision = text_fingerprint(["bm25", corpus, options.model_dump_json()])
        self._batcher = Batcher(in_thread(self.search_all), max_batch=64) if len(passages) > _SEARCHED_AT_ONCE else None

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` best hits with a positive score. Ties go to the first passage in the corpus."""
        return await self._batcher((query, k)) if self._batcher else self._search(query, k)

    def search_all(self, searches: Sequence[tuple[str, int]]) -> list[list[Hit]]:
        """The hits of each (query, k)."""
        return [self._search(query, k) for query, k in searches]

    def _search(self, query: str, k: int) -> list[Hit]:
        words = self._index.get_tokens_ids(self._tokenize([query])[0][:_MOST_WORDS])
        scores = self._index.get_scores_from_ids(words)
        return [Hit(self._passages[i], float(scores[i])) for i in best_positions(scores, k)]


class Tokenizer:
    """Lower-cased words of at least two characters, stemmed and without stop words, like `bm25s.tokenize` for one query at a time.

    Raises RecipeError for a language without stop words or without a stemmer.
    """

    def __init__(self, options: Options) -> None:
        import Stemmer

        if options.stemmer and options.stemmer not in Stemmer.algorithms():
            raise options.fault("stemmer", f"no stemmer is called '{options.stemmer}'. Available: {', '.join(Stemmer.algorithms())}.")
        self._stopwords = frozenset(stop_words(options, options.stopwords))
        self._stem = Stemmer.Stemmer(options.stemmer).stemWords if options.stemmer else list

    def __call__(self, texts: list[str]) -> list[list[str]]:
        """The words of each text, in order."""
        return [self._stem([word for word in _WORD.findall(text.lower()) if word not in self._stopwords]) for text in texts]


def stop_words(options: Recipe, language: str | None) -> list[str]:
    """The words that bm25s leaves out of a language's texts. Raises RecipeError for a language of `options` without any."""
    try:
        return list(BM25sTokenizer(stopwords=language or []).stopwords)
    except ValueError as error:
        raise options.fault("stopwords", str(error).splitlines()[0]) from None


def best_positions(scores: Any, k: int) -> list[int]:
    """Positions of the `k` highest positive scores, best first. Ties go to the first position."""
    at_least = _lower_bound(scores, k)
    found = np.flatnonzero(scores >= at_least) if at_least > 0 else np.flatnonzero(scores > 0)
    return found[np.lexsort((found, -scores[found]))][:k].tolist()


def _lower_bound(scores: Any, k: int) -> float:
    """A lower bound of the k-th highest score: the k-th highest of the maxima of about 8 k groups. 20 times faster than np.partition."""
    rows = len(scores) // (8 * k)
    if rows < 2:
        return 0.0
    groups = len(scores) // rows
    highest = scores[: rows * groups].reshape(rows, groups).max(axis=0)
    return float(np.partition(highest, -k)[-k])


def build(config: RetrieverConfig, options: Options) -> Bm25:
    """A retriever over the configuration's index, or over its passages in memory."""
    return Bm25.open(config.index, options) if config.index else Bm25(corpus_in_memory(config), options)


def build_index(passages: Sequence[Passage], folder: Path, options: Options) -> None:
    """Write the index of `passages` into `folder`, continuing where an earlier call stopped."""
    build_postings(passages, folder, Tokenizer(options), k1=options.k1, b=options.b, passages_per_part=_PASSAGES_PER_PART)
    write_probe(folder, lambda text: Tokenizer(options)([text])[0])


def estimate_bytes(num_passages: int, sample: Sequence[Passage], options: Options) -> tuple[int, int]:
    """The (memory, disk) in bytes that `build_index` takes for a corpus that begins with `sample`."""
    words = [set(of) for of in Tokenizer(options)([searched_text(passage) for passage in sample])]
    pairs = num_passages * sum(map(len, words)) / len(words)
    # Heaps' law: the words of a corpus grow with about the square root of its length.
    vocabulary = len(set().union(*words)) * (num_passages / len(words)) ** 0.5
    part = min(num_passages, _PASSAGES_PER_PART) * pairs / num_passages
    return round(part * 120 + vocabulary * 250 + num_passages * 24), round(pairs * 28)


RETRIEVER = RetrieverPlugin(build, Options, Indexing(build_index, estimate_bytes))
