"""BM25 over a corpus in memory, or over an index on disk. Title and text are indexed together.

Passages and queries share one tokenizer. An index stores the tokens of a test sentence and is refused when these have changed.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import Field

from refinery.contract.records import Passage, Question
from refinery.errors import RecordError
from refinery.passages.corpus import Corpus, corpus_hash, searched_text
from refinery.retrievers.base import Hit, Indexing, IndexOptions, Retriever, RetrieverConfig, RetrieverPlugin, corpus_in_memory
from refinery.retrievers.index.manifest import open_index
from refinery.retrievers.index.postings import build_postings, score_words
from refinery.retrievers.index.postings_files import read_vocabulary
from refinery.retrievers.index.postings_needs import bytes_of_build
from refinery.retrievers.index.word_counts import PASSAGES_PER_PART, Share, count_share
from refinery.retrievers.index.words import Tokenizer
from refinery.retrievers.index.words_probe import check_probe, words_version, write_probe
from refinery.retrievers.search.postings import Postings, open_postings
from refinery.retrievers.search.side_process import SideProcesses
from refinery.runtime.concurrency.batching import Batcher, in_thread
from refinery.runtime.concurrency.subprocesses import usable_cores
from refinery.runtime.files.fingerprint import text_fingerprint

# Searching fewer passages takes at most a few milliseconds, less than moving the search to a thread off the event loop.
_SEARCHED_AT_ONCE = 100_000
_PER_THREAD = 16  # searches that a thread takes over at once
_MOST_WORDS = 1_024  # of a query, like Lucene's maxClauseCount


class Options(IndexOptions):
    """BM25's parameters and how words are normalized. All of them are part of an index."""

    k1: float = Field(default=0.9, description="pyserini's default, used by the papers' BM25 baselines", ge=0)
    b: float = Field(default=0.4, description="pyserini's", ge=0, le=1)
    stemmer: str | None = Field(default="porter", description="a Snowball algorithm, or null; pyserini uses Porter")
    stopwords: str | None = Field(default="en", description="the language whose stop words are left out, such as en or german, or null")


class Bm25(Retriever):
    """BM25 with pyserini's k1 = 0.9 and b = 0.4 by default, the setting of the papers' BM25 baselines."""

    def __init__(self, passages: Sequence[Passage], options: Options | None = None) -> None:
        options = options or Options()
        if not passages:
            raise RecordError("retriever bm25: the corpus is empty. Set retriever.passages to a passages.jsonl.")
        words = Tokenizer(options)([searched_text(passage) for passage in passages])
        if not any(words):
            raise RecordError("retriever bm25: the corpus holds no words to search. Check the title and text of its passages.")
        scored = score_words(words, k1=options.k1, b=options.b)
        postings = Postings(starts=scored.starts, passages=scored.passages, scores=scored.scores, num_passages=len(passages))
        self._set(scored.number_of, passages, options, corpus_hash(passages), postings)

    @classmethod
    def open(cls, folder: Path, options: Options) -> "Bm25":
        """A memory-mapped index that `build_index` made. Raises RetrievalError when it has changed."""
        passages, manifest = open_index(folder, "bm25", options)
        check_probe(folder, lambda text: Tokenizer(options)([text])[0])
        retriever = cls.__new__(cls)
        postings = (SideProcesses if _threads_for(passages) > 1 else open_postings)(folder, len(passages))
        retriever._set(read_vocabulary(folder), passages, options, manifest.corpus_hash, postings)
        return retriever

    def _set(
        self, vocabulary: dict[str, int], passages: Sequence[Passage], options: Options, corpus: str, postings: Postings | SideProcesses
    ) -> None:
        self._vocabulary, self._passages, self._tokenize, self._postings = vocabulary, passages, Tokenizer(options), postings
        self.corpus_hash = corpus
        self.revision = text_fingerprint(["bm25", corpus, options.model_dump_json(), *words_version(passages)])
        threads = _threads_for(passages)
        # One batch more than there are threads, so that none waits for the event loop.
        self._batcher = Batcher(in_thread(self._found, threads=threads), max_batch=_PER_THREAD, at_once=threads + 1) if threads else None

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` best hits with a positive score. Ties go to the first passage in the corpus."""
        words = self._words(query)
        return await self._batcher((words, k)) if self._batcher else self._found([(words, k)])[0]

    def search_all(self, searches: Sequence[tuple[str, int]]) -> list[list[Hit]]:
        """The hits of each (query, k)."""
        return self._found([(self._words(query), k) for query, k in searches])

    def _words(self, query: str) -> list[int]:
        words = self._tokenize.of_query(query)[:_MOST_WORDS]
        return [self._vocabulary[word] for word in words if word in self._vocabulary]

    def _found(self, searches: Sequence[tuple[list[int], int]]) -> list[list[Hit]]:
        return [[Hit(self._passages[position], score) for position, score in hits] for hits in self._postings.best_of_each(searches)]


def _threads_for(passages: Sequence[Passage]) -> int:
    """How many threads search; 0 for so few passages that they are searched on the event loop."""
    return usable_cores() if len(passages) > _SEARCHED_AT_ONCE else 0


def build(config: RetrieverConfig, options: Options) -> Bm25:
    """A retriever over the configuration's index, or over its passages in memory."""
    return Bm25.open(config.index, options) if config.index else Bm25(corpus_in_memory(config), options)


def build_index(passages: Sequence[Passage], folder: Path, options: Options) -> None:
    """Write the index of a corpus into `folder`, where its passages are, continuing where an earlier call stopped."""
    tokenize = Tokenizer(options)
    build_postings(Corpus(folder), folder, tokenize, _share(folder, options), k1=options.k1, b=options.b)
    write_probe(folder, lambda text: tokenize([text])[0])


def build_shard(passages: Sequence[Passage], folder: Path, options: Options, number: int, of: int) -> None:
    """Count the words of every `of`-th part of the corpus in `folder`, from part `number` on, in this process."""
    count_share(Corpus(folder), Tokenizer(options), _share(folder, options, number, of))


def _share(folder: Path, options: Options, number: int = 0, of: int = 1) -> Share:
    return Share(
        corpus=folder,
        work=folder / "parts",
        passages_per_part=PASSAGES_PER_PART,
        stemmer=options.stemmer,
        stopwords=options.stopwords,
        number=number,
        of=of,
    )


def estimate_bytes(num_passages: int, sample: Iterable[Passage], options: Options) -> tuple[int, int]:
    """The (memory, disk) in bytes that `build_index` takes for a corpus that begins with `sample`, with all its processes."""
    return bytes_of_build(num_passages, sample, Tokenizer(options))


RETRIEVER = RetrieverPlugin(build, Options, Indexing(build_index, estimate_bytes, build_shard=build_shard))
