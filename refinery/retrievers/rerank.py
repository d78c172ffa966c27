"""A cross-encoder over the hits of another retriever (MIGRES: bge-reranker-base over 50 hits, by its raw logit)."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from refinery.errors import CheckpointError, RecipeError
from refinery.fingerprint import text_fingerprint
from refinery.passages.corpus import searched_text
from refinery.recipe import Recipe
from refinery.records import Question
from refinery.retrievers.base import Hit, Retriever, RetrieverConfig, build_retriever
from refinery.retrievers.hybrid import part_of
from refinery.retrievers.search.batcher import Batcher, in_thread

_MOST_CHARACTERS = 20_000  # of a passage; no cross-encoder reads further
_MOST_QUERIES = 16  # reranked at once


class Options(Recipe):
    """The retriever, and the model that looks at its hits again."""

    over: RetrieverConfig = Field(description="the retriever whose hits are reranked")
    model: str = Field(description="a cross-encoder with one label, such as BAAI/bge-reranker-base")
    pool: int = Field(50, description="hits reranked for each query (MIGRES Table 11)", ge=1)
    max_length: int | None = Field(None, description="tokens read of a query and a passage; the model's own limit by default", ge=1)
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str | None = Field(None, description="cpu, cuda, cuda:1; by default a GPU where there is one")
    batch_size: int = Field(32, description="pairs scored at once", ge=1)


class Rerank:
    """Scores are the cross-encoder's logits; of two that it scores alike, the other retriever's order holds."""

    def __init__(self, retriever: Retriever, options: Options) -> None:
        self._retriever, self._options = retriever, options
        self._model = _load(options)
        self._scores: Batcher[tuple[str, tuple[str, ...]], list[float]] = Batcher(in_thread(self._score_all), max_batch=_MOST_QUERIES)
        revision = getattr(retriever, "revision", None)
        judged = options.model_dump_json(exclude={"over"})
        self.revision = None if revision is None else text_fingerprint(["rerank", revision, judged])
        self.corpus_hash = getattr(retriever, "corpus_hash", None)

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` hits of the pool that the cross-encoder scores highest."""
        hits = await self._retriever.search(query, k=max(k, self._options.pool), question=question)
        if not hits:
            return []
        scores = await self._scores((query, tuple(searched_text(hit.passage)[:_MOST_CHARACTERS] for hit in hits)))
        reranked = [Hit(hit.passage, score) for hit, score in zip(hits, scores, strict=True)]
        return sorted(reranked, key=lambda hit: -hit.retrieval_score)[:k]

    def _score_all(self, searches: Sequence[tuple[str, tuple[str, ...]]]) -> list[list[float]]:
        """One logit per passage of each (query, passages), in one pass."""
        pairs = [(query, text) for query, texts in searches for text in texts]
        scores = iter(self._model.predict(pairs, batch_size=self._options.batch_size, show_progress_bar=False).tolist())
        return [[next(scores) for _ in texts] for _, texts in searches]


def _load(options: Options) -> Any:
    try:
        import torch
        from sentence_transformers import CrossEncoder
    except ImportError:
        raise RecipeError('retriever rerank: needs the extra: pip install "rag-refinery[dense]".') from None
    kwargs = {"dtype": getattr(torch, options.dtype), "use_safetensors": True}
    try:
        model = CrossEncoder(
            options.model,
            max_length=options.max_length,
            device=options.device,
            model_kwargs=kwargs,
            activation_fn=torch.nn.Identity(),
            trust_remote_code=False,
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cross-encoder '{options.model}': cannot be loaded ({str(error).splitlines()[0]}).") from None
    if model.num_labels != 1:
        raise CheckpointError(f"cross-encoder '{options.model}': gives {model.num_labels} labels; a reranker gives one score.")
    return model


def build(config: RetrieverConfig, options: Options) -> Rerank:
    """Over the retriever that the options name."""
    return Rerank(build_retriever(part_of(config, options.over)), options)
