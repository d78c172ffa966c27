"""BM25 by tantivy, an embedded engine in Rust: for corpora of millions of passages, on every core.

Its words are those of `bm25`, but for the stemmer: tantivy has Snowball's English stemmer and not Porter's first. Its formula has k1 = 1.2
and b = 0.75, which cannot be set, a factor of k1 + 1, and lengths above 40 words rounded to one byte.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import Field

from refinery.contract.records import Passage, Question
from refinery.passages.corpus import batches, corpus_hash, searched_text
from refinery.retrievers.base import Hit, Indexing, IndexOptions, Retriever, RetrieverConfig, RetrieverPlugin, corpus_in_memory
from refinery.retrievers.index.manifest import open_index
from refinery.retrievers.index.words import stop_words
from refinery.retrievers.index.words_probe import check_probe, words_version, write_probe
from refinery.retrievers.search.ties import with_ties
from refinery.runtime.concurrency.subprocesses import usable_cores
from refinery.runtime.files.fingerprint import text_fingerprint
from refinery.runtime.run.progress import Progress
from refinery.unspaced import has_unspaced, is_unspaced, pairs_apart

_FOLDER, _TEXT, _POSITION = "tantivy", "text", "position"
_ANALYZER = "refinery"
_MOST_WORDS = 1_024  # of a query, like Lucene's maxClauseCount
_PASSAGES_PER_COMMIT = 200_000
_WRITER_BYTES = 1 << 29  # of all the writer's threads together
_SAMPLE = 1_000


class Options(IndexOptions):
    """How words are normalized. All of it is part of an index."""

    stemmer: str | None = Field(default="english", description="one of tantivy's Snowball stemmers (english is Porter2), or null")
    stopwords: str | None = Field(default="en", description="the language whose stop words are left out, such as en or german, or null")


class Tantivy(Retriever):
    """Searches on several threads, without the interpreter's lock."""

    def __init__(self, index: Any, passages: Sequence[Passage], options: Options, corpus: str) -> None:
        self._engine, self._tokenize = _engine(options), _analyzer(options).analyze
        self._schema, self._searcher, self._passages = index.schema, index.searcher(), passages
        self._threads = ThreadPoolExecutor(max_workers=usable_cores())
        self.corpus_hash = corpus
        self.revision = text_fingerprint(["tantivy", corpus, options.model_dump_json(), *words_version(passages)])

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` best passages that contain any of the query's words. Equal scores keep the corpus's order."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._search, self._words(query), k)

    def search_all(self, searches: Sequence[tuple[str, int]]) -> list[list[Hit]]:
        """The hits of each (query, k)."""
        return [self._search(self._words(query), k) for query, k in searches]

    def _words(self, query: str) -> list[str]:
        """Its words; letters without spaces between words are pairs, and whole, as texts have them that only quote them."""
        words = self._tokenize(pairs_apart(query))
        return [*words, *(word for word in self._tokenize(query) if word not in words)] if has_unspaced(query) else words

    def _search(self, words: list[str], k: int) -> list[Hit]:
        # Words are looked up as they are: the engine's query syntax would read operators in them.
        should, term_query = self._engine.Occur.Should, self._engine.Query.term_query
        query = self._engine.Query.boolean_query([(should, term_query(self._schema, _TEXT, word)) for word in words[:_MOST_WORDS]])
        found = with_ties(lambda limit: self._searcher.search(query, limit, count=False).hits, k)
        positions = self._searcher.fast_field_values(_POSITION, [address for _, address in found])
        best = sorted(zip(positions, found, strict=True), key=lambda one: (-one[1][0], one[0]))[:k]
        return [Hit(self._passages[position], score) for position, (score, _) in best]


def build(config: RetrieverConfig, options: Options) -> Tantivy:
    """A retriever over the configuration's index, or over its passages in memory."""
    engine = _engine(options)
    if config.index:
        passages, manifest = open_index(config.index, "tantivy", options)
        check_probe(config.index, _tokenizer(options))
        return Tantivy(_unwatched(engine.Index.open(str(config.index / _FOLDER))), passages, options, manifest.corpus_hash)
    passages = corpus_in_memory(config)
    index = _new_index(options, None)
    _add(options, index, passages, 0)
    return Tantivy(index, passages, options, corpus_hash(passages))


def build_index(passages: Sequence[Passage], folder: Path, options: Options) -> None:
    """Write the index of `passages` into `folder`, continuing after the last commit of an earlier call."""
    (folder / _FOLDER).mkdir(exist_ok=True)
    index = _new_index(options, folder / _FOLDER)
    _add(options, index, passages, index.searcher().num_docs)
    write_probe(folder, _tokenizer(options))


def estimate_bytes(num_passages: int, sample: Iterable[Passage], options: Options) -> tuple[int, int]:
    """The (memory, disk) in bytes that `build_index` takes for a corpus that begins with `sample`. Merges need the index's size again."""
    words = _tokenizer(options)
    pairs = num_passages * fmean(len(set(words(searched_text(passage)))) for passage in islice(sample, _SAMPLE))
    return _WRITER_BYTES, round(pairs * 6)


RETRIEVER = RetrieverPlugin(build, Options, Indexing(build_index, estimate_bytes))


def _engine(options: Options) -> Any:
    try:
        return import_module("tantivy")
    except ImportError:
        raise options.fault("stemmer", 'tantivy needs its extra. Install it: pip install "rag-refinery[tantivy]"') from None


def _new_index(options: Options, folder: Path | None) -> Any:
    """An index in the folder, which may have been begun, or in memory. Within a segment, documents are in the corpus's order."""
    engine = _engine(options)
    schema = engine.SchemaBuilder()
    schema.add_text_field(_TEXT, tokenizer_name=_ANALYZER, index_option="freq")
    schema.add_unsigned_field(_POSITION, fast=True)
    index = _unwatched(engine.Index(schema.build(), str(folder) if folder else None, sort_by_field=_POSITION))
    index.register_tokenizer(_ANALYZER, _analyzer(options))
    return index


def _unwatched(index: Any) -> Any:
    """`index`, which follows its files no more: to read them again, the engine's watcher locks the folder that has their name by then."""
    index.config_reader(reload_policy="manual")
    return index


def _add(options: Options, index: Any, passages: Sequence[Passage], start: int) -> None:
    writer, new_document = index.writer(_WRITER_BYTES), _engine(options).Document
    with Progress("index words", total=len(passages)) as progress:
        progress.advance(start)
        for batch in batches(passages, start=start, most=_PASSAGES_PER_COMMIT):
            for position, passage in enumerate(batch, start):
                document = new_document()
                document.add_text(_TEXT, _split(searched_text(passage)))
                document.add_unsigned(_POSITION, position)
                writer.add_document(document)
            writer.commit()
            start += len(batch)
            progress.advance(len(batch))
    writer.wait_merging_threads()
    index.reload()


def _tokenizer(options: Options) -> Callable[[str], list[str]]:
    analyzer = _analyzer(options)
    return lambda text: analyzer.analyze(_split(text))


def _split(text: str) -> str:
    return pairs_apart(text) if is_unspaced(text) else text


def _analyzer(options: Options) -> Any:
    """The words of `bm25`: runs of at least two letters or digits, lower-cased, without stop words, stemmed."""
    engine = _engine(options)
    builder = engine.TextAnalyzerBuilder(engine.Tokenizer.regex(r"\w\w+")).filter(engine.Filter.lowercase())
    builder = builder.filter(engine.Filter.custom_stopword(stop_words(options, options.stopwords)))
    if options.stemmer is None:
        return builder.build()
    try:
        return builder.filter(engine.Filter.stemmer(options.stemmer)).build()
    except ValueError as error:
        raise options.fault("stemmer", str(error).splitlines()[0]) from None
