"""Several retrievers over one corpus, combined by reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009)."""

import asyncio
from collections.abc import Sequence

from pydantic import Field

from refinery.contract.records import Passage, Question
from refinery.retrievers.base import Hit, Retriever, RetrieverConfig, RetrieverPlugin
from refinery.retrievers.search.build import build_retriever
from refinery.runtime.files.fingerprint import text_fingerprint
from refinery.runtime.recipe import Recipe


class Options(Recipe):
    """The retrievers, and how their hits are combined."""

    of: list[RetrieverConfig] = Field(description="the retrievers, each with its own corpus or index", min_length=2)
    pool: int = Field(default=100, description="hits taken from each retriever; MIGRES takes 50 from each of two", ge=1)
    constant: int = Field(default=60, description="the k of reciprocal rank fusion; 60 in its paper", ge=0)


class Hybrid(Retriever):
    """A passage's score is the sum, over the retrievers that found it, of 1 / (constant + its position)."""

    def __init__(self, retrievers: Sequence[Retriever], options: Options) -> None:
        self._retrievers, self._options = retrievers, options
        revisions = [retriever.revision for retriever in retrievers if retriever.revision is not None]
        known = len(revisions) == len(retrievers)
        self.revision = text_fingerprint(["hybrid", *revisions, f"{options.pool} {options.constant}"]) if known else None
        hashes = {retriever.corpus_hash for retriever in retrievers}
        self.corpus_hash = hashes.pop() if len(hashes) == 1 else None

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` best of all hits."""
        pool = max(k, self._options.pool)
        found = await asyncio.gather(*(retriever.search(query, k=pool, question=question) for retriever in self._retrievers))
        passages: dict[str, Passage] = {}
        scores: dict[str, float] = {}
        for hits in found:
            for position, hit in enumerate(hits, 1):
                passages.setdefault(hit.passage.id, hit.passage)
                scores[hit.passage.id] = scores.get(hit.passage.id, 0.0) + 1 / (self._options.constant + position)
        best = sorted(scores, key=lambda passage_id: -scores[passage_id])[:k]  # ties go to the first retriever
        return [Hit(passages[passage_id], scores[passage_id]) for passage_id in best]


def build(config: RetrieverConfig, options: Options) -> Hybrid:
    """A retriever over those that the options name. One without a corpus searches the corpus of this configuration."""
    return Hybrid([build_retriever(part_of(config, part)) for part in options.of], options)


RETRIEVER = RetrieverPlugin(build, Options, parts=lambda options: options.of)


def part_of(config: RetrieverConfig, part: RetrieverConfig) -> RetrieverConfig:
    """A retriever inside another: over its own corpus, or else over the outer retriever's."""
    return part if part.passages or part.index else part.model_copy(update={"passages": config.passages})
