"""The retriever protocol, its configuration, and how a corpus is read into memory.

A back-end is one file with a function `build`. It may be outside this project: a recipe names it, as in `name: my_lab.colbert`.

    class Options(Recipe):
        url: str

    class ColBert(Retriever):
        async def search(self, query, *, k, question=None):
            ...

    def build(config: RetrieverConfig, options: Options) -> ColBert:
        return ColBert(options.url)

A back-end that `refinery index` builds an index for, or that searches other retrievers, also declares `RETRIEVER = RetrieverPlugin(...)`.
One with an index is an `IndexedRetriever`, which has `search_all` too.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import Field, model_validator

from refinery.contract.records import Passage, Question
from refinery.errors import RecordError
from refinery.runtime.recipe import NoOptions, Recipe, options_type
from refinery.runtime.recipes.plugins import PluginKind

if TYPE_CHECKING:
    from refinery.passages.settings import SplitSettings


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved passage and its retrieval score. Hits are sorted best first."""

    passage: Passage
    retrieval_score: float


class Retriever(Protocol):
    """Finds passages for a query. A subclass sets those of the two fields that it knows.

    `revision` is a text that changes with anything the hits depend on; it is part of the key of cached searches. It is None when hits
    depend on the question, or on something without a revision. `corpus_hash` is the same for every retriever over one corpus.
    """

    revision: str | None = None
    corpus_hash: str | None = None

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` best hits. `question` is the user's question, for retrievers that search its own candidate passages.

        Raises RetrievalError when the search fails.
        """
        ...


class IndexedRetriever(Retriever, Protocol):
    """A retriever over an index folder, which is also searched without an event loop.

    `refinery index` stores what a few queries find when an index is built, and they are searched again whenever it is opened. Hits must
    depend on nothing but the index and the query then.
    """

    def search_all(self, searches: Sequence[tuple[str, int]]) -> list[list[Hit]]:
        """The `k` best hits of each (query, k), in the order of the searches."""
        ...


class RetrieverConfig(Recipe):
    """The retriever and the corpus it searches."""

    name: str = Field(default="bm25", description="a file of refinery/retrievers, an entry point of that group, or a module of your own")
    passages: Path | None = Field(default=None, description="JSON Lines, Parquet, DPR's TSV or a folder of documents, searched in memory")
    index: Path | None = Field(default=None, description="a folder that `refinery index` made, instead of `passages`")
    options: dict[str, Any] = Field(default={}, description="the retriever's own options")
    cache: Path | None = Field(default=None, description="a file that stores searches between runs")

    @property
    def corpus_files(self) -> list[Path]:
        """The files whose content changes when the corpus does."""
        return [self.passages] if self.passages else [self.index / "index.json"] if self.index else []

    @model_validator(mode="after")
    def _one_corpus(self) -> "RetrieverConfig":
        if self.passages and self.index:
            raise ValueError("name the corpus with either `passages` (searched in memory) or `index` (memory-mapped)")
        return self


class IndexOptions(Recipe):
    """Base of the options of a retriever with an index. Options in `SEARCH_ONLY` may differ from those that the index was built with."""

    SEARCH_ONLY: ClassVar[frozenset[str]] = frozenset()


EstimateBytes = Callable[[int, Iterable[Passage], Any], tuple[int, int]]
BuildShard = Callable[[Sequence[Passage], Path, Any, int, int], None]


@dataclass(frozen=True, slots=True)
class Indexing:
    """How `refinery index` writes the index of a retriever, which opens it when `config.index` names the folder.

    `build_index(passages, folder, options)` continues where an earlier call stopped. `estimate_bytes(num_passages, sample, options)` is
    the (memory, disk) that the build takes, in bytes; `sample` goes once through the first passages, of which there is at least one.
    `reuse_index(passages, folder, options, previous)` builds it too, but takes what did not change from the index in the folder
    `previous`; it returns how many passages that were. Without it, an update builds all of it. `build_shard(passages, folder, options,
    number, of)` builds those parts that `build_index` joins in shard `number` (from 0) `of` the index, continuing where an earlier call
    stopped. Several processes do so at once. Without it, one process builds the index.
    """

    build_index: Callable[[Sequence[Passage], Path, Any], None]
    estimate_bytes: EstimateBytes
    reuse_index: Callable[[Sequence[Passage], Path, Any, Path], int] | None = None
    build_shard: BuildShard | None = None


def _no_parts(options: Any) -> Sequence[RetrieverConfig]:
    return ()


@dataclass(frozen=True, slots=True)
class RetrieverPlugin:
    """What a retriever's file declares as `RETRIEVER`.

    `build(config, options)` makes the retriever. `parts(options)` lists the retrievers inside this one, whose corpora it searches.
    """

    build: Callable[[RetrieverConfig, Any], Retriever]
    options: type[Recipe] = NoOptions
    indexing: Indexing | None = None
    parts: Callable[[Any], Sequence[RetrieverConfig]] = _no_parts


def _of_function(build: Callable[..., Any]) -> RetrieverPlugin:
    return RetrieverPlugin(build, options_type(build))


RETRIEVERS = PluginKind("retriever", "refinery.retrievers", RetrieverPlugin, "RETRIEVER", "build", ("config", "options"), _of_function)


def read_passages(path: Path, settings: "SplitSettings | None" = None) -> Sequence[Passage]:
    """Read a corpus into memory. Ids must be unique. Documents are cut as by `iter_passages`."""
    from refinery.passages.settings import DEFAULT_SETTINGS
    from refinery.passages.sources import iter_passages

    passages = list(iter_passages(path, settings or DEFAULT_SETTINGS))
    if not passages:
        raise RecordError(f"{path}: has no rows. It should hold one Passage per line.")
    seen: set[str] = set()
    for number, passage in enumerate(passages, 1):
        if passage.id in seen:
            raise RecordError(f"{path}: passage {number}: id '{passage.id}' is used twice. Ids must be unique.")
        seen.add(passage.id)
    return passages


def corpus_in_memory(config: RetrieverConfig) -> Sequence[Passage]:
    """The passages of a configuration without an index. Raises RecipeError when it names none."""
    if config.passages is None:
        raise config.fault("passages", f"is missing, and so is `index`. {config.name} needs one of them to find its corpus.")
    return read_passages(config.passages)
