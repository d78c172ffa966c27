"""The retriever protocol, its configuration, and how a corpus is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import Field

from refinery import plugins
from refinery.errors import RecordError
from refinery.recipe import Recipe
from refinery.records import Passage, Question, read_records


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved passage and its retrieval score; hits come best first."""

    passage: Passage
    retrieval_score: float


class Retriever(Protocol):
    """Finds passages for a query."""

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` best hits; `question` is the one asked, for retrievers that search its own candidate passages."""
        ...


class RetrieverConfig(Recipe):
    """Which retriever searches which corpus."""

    name: str = Field("bm25", description="a file of refinery/retrievers, or module:attribute")
    passages: Path | None = Field(None, description="passages.jsonl; not needed where each question brings its own (candidates)")


def build_retriever(config: RetrieverConfig) -> Retriever:
    """The configured retriever over its corpus. Raises RecordError when the corpus cannot be read."""
    retriever = plugins.load("refinery.retrievers", config.name)
    build = retriever.build if hasattr(retriever, "build") else retriever
    return build(read_passages(config.passages) if config.passages else [])


def read_passages(path: Path) -> Sequence[Passage]:
    """Read `passages.jsonl`; ids must be unique."""
    passages = read_records(path, Passage)
    seen: set[str] = set()
    for number, passage in enumerate(passages, 1):
        if passage.id in seen:
            raise RecordError(f"{path}: passage {number}: id '{passage.id}' is used twice. Ids must be unique.")
        seen.add(passage.id)
    return passages
