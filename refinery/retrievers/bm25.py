"""BM25 over a corpus in memory (bm25s). Title and text are indexed together; documents and queries share one tokenizer."""

import hashlib
import logging
from collections.abc import Sequence

import bm25s

from refinery.errors import RecordError
from refinery.records import Passage, Question
from refinery.retrievers.base import Hit

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it logs every index it builds, at a level of its own


class Bm25:
    """BM25 with pyserini's k1 = 0.9 and b = 0.4, the setting of the papers' BM25 baselines."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        if not passages:
            raise RecordError("retriever bm25: the corpus is empty. Set retriever.passages to a passages.jsonl.")
        self._passages = passages
        self._index = bm25s.BM25(k1=0.9, b=0.4)
        words = _tokenize([f"{p.title} {p.text}" for p in passages])
        if not any(words):
            raise RecordError("retriever bm25: the corpus holds no words to search. Check the title and text of its passages.")
        self._index.index(words, show_progress=False)
        self.revision = corpus_revision(passages)
        self._found: dict[tuple[str, int], list[Hit]] = {}

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` best hits with a positive score; equal queries are searched once."""
        if (query, k) not in self._found:
            self._found[query, k] = self._search(query, k)
        return self._found[query, k]

    def _search(self, query: str, k: int) -> list[Hit]:
        count = min(k, len(self._passages))
        positions, scores = self._index.retrieve(_tokenize([query]), k=count, show_progress=False, n_threads=0)
        return [Hit(self._passages[int(i)], float(s)) for i, s in zip(positions[0], scores[0], strict=True) if s > 0]


def corpus_revision(passages: Sequence[Passage]) -> str:
    """16 hex digits that change with any passage, its place, or what is searched of it."""
    digest = hashlib.blake2b(digest_size=8)
    for passage in passages:
        digest.update(passage.model_dump_json().encode())
    return digest.hexdigest()


def _tokenize(texts: list[str]) -> list[list[str]]:
    return bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)


build = Bm25
