"""LanceDB, an embedded engine: BM25 over the words of `bm25`, or with an encoder an exact search of the vectors of `dense`.

The index folder has the corpus and a table with a row for each passage: its position, and its words or its vector. The engine gets words
that are split and stemmed already, those of `bm25`. Its BM25 has k1 = 1.2 and b = 0.75, which cannot be set.
"""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import Field

from refinery.contract.records import Passage, Question
from refinery.errors import RetrievalError
from refinery.passages.corpus import batches, searched_text
from refinery.retrievers.base import Hit, Indexing, IndexOptions, Retriever, RetrieverConfig, RetrieverPlugin
from refinery.retrievers.index.manifest import open_index
from refinery.retrievers.index.words import Tokenizer
from refinery.retrievers.index.words_probe import words_version
from refinery.retrievers.search.encoder import EncoderConfig, load_encoder
from refinery.retrievers.search.ties import with_ties
from refinery.runtime.concurrency.batching import Batcher, in_thread
from refinery.runtime.concurrency.subprocesses import usable_cores
from refinery.runtime.files.fingerprint import text_fingerprint
from refinery.runtime.run.progress import Progress

_FOLDER, _TABLE = "lancedb", "passages"
_MOST_WORDS = 1_024  # of a query, like Lucene's maxClauseCount
_MOST_QUERIES = 256  # prepared at once
_ROWS_AT_ONCE, _SAMPLE = 10_000, 1_000


class Options(IndexOptions):
    """How words are normalized, or what encodes passages instead. All of it is part of an index."""

    SEARCH_ONLY: ClassVar[frozenset[str]] = frozenset({"encoder"})

    encoder: EncoderConfig | None = Field(default=None, description="search its vectors, instead of words")
    stemmer: str | None = Field(default="porter", description="of words: a Snowball algorithm, or null")
    stopwords: str | None = Field(
        default="en", description="of words: the language whose stop words are left out, such as en or german, or null"
    )


class _Column(Protocol):
    """The column of the table that is searched."""

    name: str

    def of(self, texts: Sequence[str]) -> Any:
        """The column's values for passages, as an Arrow array."""
        ...

    def queries(self, texts: Sequence[str]) -> Sequence[Any]:
        """What is searched for each query."""
        ...

    def search(self, table: Any, query: Any, limit: int) -> list[tuple[float, int]]:
        """The best (score, position)."""
        ...

    def finish(self, table: Any) -> None:
        """Build what a search needs besides the rows."""
        ...


class _Words(_Column):
    def __init__(self, options: Options) -> None:
        self.name = "words"
        self._split, self._engine = Tokenizer(options), _engine(options)

    def of(self, texts: Sequence[str]) -> Any:
        return import_module("pyarrow").array([" ".join(words) for words in self._split(texts)], type="string")

    def queries(self, texts: Sequence[str]) -> Sequence[str]:
        return [" ".join(self._split.of_query(text)[:_MOST_WORDS]) for text in texts]

    def search(self, table: Any, query: str, limit: int) -> list[tuple[float, int]]:
        if not query:
            return []
        # Words are looked up as they are: the engine's query syntax would read operators in them.
        match = import_module("lancedb.query").MatchQuery(query, self.name)
        found = table.search(match, query_type="fts").limit(limit).select(["position", "_score"]).to_arrow()
        return list(zip(found["_score"].to_pylist(), found["position"].to_pylist(), strict=True))

    def finish(self, table: Any) -> None:
        as_they_are = import_module("lancedb.index").FTS(
            base_tokenizer="whitespace",
            max_token_length=None,
            lower_case=False,
            stem=False,
            remove_stop_words=False,
            ascii_folding=False,
        )
        table.create_index(self.name, config=as_they_are, replace=True)


class _Vectors(_Column):
    def __init__(self, encoder: EncoderConfig) -> None:
        self.name, self._encoder = "vector", load_encoder(encoder)

    def of(self, texts: Sequence[str]) -> Any:
        vectors, arrow = self._encoder.passages(texts), import_module("pyarrow")
        return arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.ravel()), vectors.shape[1])

    def queries(self, texts: Sequence[str]) -> Sequence[Any]:
        return list(self._encoder.queries(texts))

    def search(self, table: Any, query: Any, limit: int) -> list[tuple[float, int]]:
        asked = table.search(query, vector_column_name=self.name).distance_type("dot")
        found = asked.limit(limit).select(["position", "_distance"]).to_arrow()
        return [(1 - distance, at) for distance, at in zip(found["_distance"].to_pylist(), found["position"].to_pylist(), strict=True)]

    def finish(self, table: Any) -> None:
        """Nothing: every vector is compared."""


class LanceDB(Retriever):
    """Prepares concurrent queries in one batch, and searches for them on several threads."""

    def __init__(self, table: Any, column: _Column, passages: Sequence[Passage], options: Options, corpus: str) -> None:
        self._table, self._column, self._passages = table, column, passages
        self._prepare: Batcher[str, Any] = Batcher(in_thread(column.queries), max_batch=_MOST_QUERIES)
        self._threads = ThreadPoolExecutor(max_workers=usable_cores())
        self.corpus_hash = corpus
        version = [] if options.encoder else words_version(passages)
        self.revision = text_fingerprint(["lancedb", corpus, options.model_dump_json(), *version])

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` best passages. Equal scores keep the corpus's order."""
        prepared = await self._prepare(query)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._found, prepared, k)

    def search_all(self, searches: Sequence[tuple[str, int]]) -> list[list[Hit]]:
        """The hits of each (query, k)."""
        prepared = self._column.queries([query for query, _ in searches]) if searches else []
        return [self._found(query, k) for query, (_, k) in zip(prepared, searches, strict=True)]

    def _found(self, query: Any, k: int) -> list[Hit]:
        found = with_ties(lambda limit: self._column.search(self._table, query, limit), k)
        return [Hit(self._passages[position], score) for score, position in sorted(found, key=lambda one: (-one[0], one[1]))[:k]]


def build(config: RetrieverConfig, options: Options) -> LanceDB:
    """A retriever over the configuration's index."""
    if config.index is None:
        raise config.fault("index", "is missing: lancedb searches an index. Build it: refinery index PASSAGES --output DIR.")
    passages, manifest = open_index(config.index, "lancedb", options)
    table, column = _database(options, config.index).open_table(_TABLE), _column(options)
    if column.name not in table.schema.names:
        raise RetrievalError(f"{config.index}: has no {column.name}. Remove `options.encoder`, or build the index again with it.")
    return LanceDB(table, column, passages, options, manifest.corpus_hash)


def build_index(passages: Sequence[Passage], folder: Path, options: Options) -> None:
    """Write the table of `passages` into `folder`, continuing after the rows of an earlier call."""
    database, column = _database(options, folder), _column(options)
    table = database.open_table(_TABLE) if _TABLE in database.list_tables().tables else None
    start = table.count_rows() if table else 0
    with Progress("index passages", total=len(passages)) as progress:
        progress.advance(start)
        for batch in batches(passages, start=start, most=_ROWS_AT_ONCE):
            rows = _rows(batch, start, column)
            table = table.add(rows) and table if table else database.create_table(_TABLE, rows)
            start += len(batch)
            progress.advance(len(batch))
    column.finish(table)


def estimate_bytes(num_passages: int, sample: Iterable[Passage], options: Options) -> tuple[int, int]:
    """The (memory, disk) in bytes that `build_index` takes for a corpus that begins with `sample`, without the encoder's own memory."""
    first = list(islice(sample, _SAMPLE))  # no more: their texts may have to be encoded
    row = _rows(first, 0, _column(options)).nbytes / len(first)
    return round((1 << 28) + 4 * row * min(num_passages, _ROWS_AT_ONCE)), round(2 * row * num_passages)


RETRIEVER = RetrieverPlugin(build, Options, Indexing(build_index, estimate_bytes))


def _column(options: Options) -> _Column:
    return _Vectors(options.encoder) if options.encoder else _Words(options)


def _rows(passages: Sequence[Passage], start: int, column: _Column) -> Any:
    texts = [searched_text(passage) for passage in passages]
    positions = range(start, start + len(passages))
    return import_module("pyarrow").table({"position": list(positions), column.name: column.of(texts)})


def _engine(options: Options) -> Any:
    try:
        return import_module("lancedb")
    except ImportError:
        raise options.fault("encoder", 'lancedb needs its extra. Install it: pip install "rag-refinery[lancedb]"') from None


def _database(options: Options, folder: Path) -> Any:
    return _engine(options).connect(str(folder / _FOLDER))
