"""Run equal searches once: concurrent ones share a search, finished ones are remembered, and a file stores them between runs."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from refinery.contract.records import Passage, Question
from refinery.errors import RetrievalError
from refinery.retrievers.base import Hit, Retriever
from refinery.runtime.concurrency.single_flight import SingleFlight
from refinery.runtime.files.fingerprint import store_key
from refinery.runtime.files.sqlite import open_database
from refinery.runtime.observe import telemetry

_MOST_REMEMBERED = 10_000
# Longer texts are not real queries: endless model output or a page pasted as a question would take seconds and find nothing more.
_MOST_CHARACTERS = 8_192
_Key = tuple[str, int, str | None]


def search_key(revision: str, query: str, k: int) -> bytes:
    """A 16-byte key of everything that a search's hits depend on. `revision` is the retriever's."""
    return store_key(json.dumps(["search", revision, query, k]).encode())


class CachedRetriever(Retriever):
    """A retriever with a cache of its hits.

    A failed search raises for each caller that waits for it, and is tried again at the next call. Raises RetrievalError for a `cache`
    that is another kind of file.
    """

    def __init__(self, retriever: Retriever, cache: Path | None = None) -> None:
        self.retriever = retriever
        self.revision, self.corpus_hash = retriever.revision, retriever.corpus_hash
        self._found: dict[_Key, list[Hit]] = {}
        self._under_way: SingleFlight[_Key, list[Hit]] = SingleFlight()
        self._file = _SearchFile(cache) if cache else None
        self._name = type(retriever).__module__.rpartition(".")[2]  # as recipes name it

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """See `Retriever.search`. Only the first 8,192 characters of a query are searched."""
        query = query[:_MOST_CHARACTERS].encode("utf-8", "replace").decode()
        key = (query, k, question.id if question and self.revision is None else None)
        return await telemetry.search(self._name, k, self._found_or_searched(key, question))

    async def _found_or_searched(self, key: _Key, question: Question | None) -> list[Hit]:
        if key not in self._found:
            return await self._under_way(key, lambda: self._search(key, question))
        return self._found[key]

    async def _search(self, key: _Key, question: Question | None) -> list[Hit]:
        hits = await self._read_or_search(key, question)
        if len(self._found) >= _MOST_REMEMBERED:
            self._found.pop(next(iter(self._found)))
        self._found[key] = hits
        return hits

    async def _read_or_search(self, key: _Key, question: Question | None) -> list[Hit]:
        query, k, _ = key
        if self._file is None or self.revision is None:
            return await self.retriever.search(query, k=k, question=question)
        name = search_key(self.revision, query, k)
        if (hits := self._file.get(name)) is None:
            hits = await self.retriever.search(query, k=k, question=question)
            self._file.put(name, hits)
        return hits


class _SearchFile:
    """Hits by search key in a SQLite file that several processes may share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # A server opens it on one thread and searches on another, but never on two at once.
            self._database = open_database(path, isolation_level=None, check_same_thread=False)
            self._run("CREATE TABLE IF NOT EXISTS searches (key BLOB PRIMARY KEY, hits TEXT NOT NULL)")
        except (sqlite3.Error, OSError) as error:
            raise RetrievalError(f"{path}: cannot store searches ({error}). Choose another file for retriever.cache.") from None

    def get(self, key: bytes) -> list[Hit] | None:
        rows = self._run("SELECT hits FROM searches WHERE key = ?", key)
        return [Hit(Passage.model_validate(passage), score) for score, passage in json.loads(rows[0][0])] if rows else None

    def put(self, key: bytes, hits: list[Hit]) -> None:
        self._run(
            "INSERT OR REPLACE INTO searches VALUES (?, ?)",
            key,
            json.dumps([[hit.retrieval_score, hit.passage.model_dump()] for hit in hits]),
        )

    def _run(self, statement: str, *values: Any) -> list[Any]:
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise RetrievalError(
                f"{self._path}: cannot store searches ({error}). Free some space, or choose another retriever.cache."
            ) from None
