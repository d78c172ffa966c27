"""A cross-encoder that reranks the hits of another retriever (MIGRES: bge-reranker-base over 50 hits, by its raw logit)."""

from pydantic import Field

from refinery.contract.records import Question
from refinery.passages.corpus import searched_text
from refinery.retrievers.base import Hit, Retriever, RetrieverConfig, RetrieverPlugin
from refinery.retrievers.hybrid import part_of
from refinery.retrievers.search.build import build_retriever
from refinery.retrievers.search.cross_encoder import CrossEncoderConfig, load_cross_encoder
from refinery.runtime.files.fingerprint import text_fingerprint


class Options(CrossEncoderConfig):
    """The retriever, and the model that reranks its hits."""

    over: RetrieverConfig = Field(description="the retriever whose hits are reranked")
    pool: int = Field(default=50, description="hits reranked for each query (MIGRES Table 11)", ge=1)


class Rerank(Retriever):
    """Scores are the cross-encoder's logits. Ties keep the other retriever's order."""

    def __init__(self, retriever: Retriever, options: Options) -> None:
        self._retriever, self._pool = retriever, options.pool
        self._cross_encoder = load_cross_encoder(options)
        judged = options.model_dump_json(exclude={"over"})
        self.revision = None if retriever.revision is None else text_fingerprint(["rerank", retriever.revision, judged])
        self.corpus_hash = retriever.corpus_hash

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` hits of the pool that the cross-encoder scores highest."""
        hits = await self._retriever.search(query, k=max(k, self._pool), question=question)
        if not hits:
            return []
        scores = await self._cross_encoder.score(query, [searched_text(hit.passage) for hit in hits])
        reranked = [Hit(hit.passage, score) for hit, score in zip(hits, scores, strict=True)]
        return sorted(reranked, key=lambda hit: -hit.retrieval_score)[:k]


def build(config: RetrieverConfig, options: Options) -> Rerank:
    """A reranker over the retriever that the options name."""
    return Rerank(build_retriever(part_of(config, options.over)), options)


RETRIEVER = RetrieverPlugin(build, Options, parts=lambda options: [options.over])
