"""Search each question's own passages, which multi-hop datasets provide (RQ-RAG's `bm25_candidates` and `openai_embed`)."""

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from refinery.contract.records import Passage, Question
from refinery.errors import RecordError
from refinery.passages.corpus import searched_text
from refinery.retrievers import bm25
from refinery.retrievers.base import Hit, Retriever, RetrieverConfig, RetrieverPlugin
from refinery.retrievers.search.encoder import EncoderConfig, load_encoder
from refinery.runtime.concurrency.batching import Batcher, in_thread
from refinery.runtime.recipe import Recipe

_MOST_KEPT = 1_024  # questions whose passages stay indexed
_MOST_ENCODED = 512  # texts of one batch
# RQ-RAG's data_curation/tools/bm25_candidates.py: rank_bm25's defaults, and the most characters of a query.
_K1, _B, _EPSILON, _MOST_CHARACTERS = 1.5, 0.75, 0.25, 300


class Options(Recipe):
    """How a question's passages are scored."""

    scoring: Literal["bm25", "okapi", "embeddings"] = Field(
        default="bm25", description="okapi: as in RQ-RAG's code, over case-sensitive words split at spaces"
    )
    bm25_options: bm25.Options = Field(default=bm25.Options(), description="bm25: its parameters")
    encoder: EncoderConfig | None = Field(
        default=None, description="for embeddings; the authors use text-embedding-3-large", validate_default=True
    )

    @field_validator("encoder")
    @classmethod
    def _embeddings_need_an_encoder(cls, encoder: EncoderConfig | None, info: ValidationInfo) -> EncoderConfig | None:
        if (encoder is None) == (info.data.get("scoring") == "embeddings"):
            raise ValueError("`encoder` and scoring: embeddings need each other")
        return encoder


class Candidates(Retriever):
    """Ranks the passages that come with the question. Their tokens or vectors are kept for the question's next search."""

    def __init__(self, options: Options | None = None) -> None:
        self._options = options or Options()
        self._kept: dict[str, Any] = {}
        self._search = {"bm25": self._by_bm25, "okapi": self._by_okapi, "embeddings": self._by_embeddings}[self._options.scoring]
        if self._options.encoder:
            self._encoder = load_encoder(self._options.encoder)
            self._encode = Batcher(in_thread(self._encode_all), max_batch=_MOST_ENCODED)

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` best of the question's own passages. Raises RecordError when it has none."""
        if question is None or not question.passages:
            raise RecordError("retriever candidates: the question comes without passages. Use retriever bm25 with a corpus.")
        return await self._search(query, k, question.id, question.passages)

    async def _by_bm25(self, query: str, k: int, question_id: str, passages: list[Passage]) -> list[Hit]:
        if question_id not in self._kept:
            self._keep(question_id, bm25.Bm25(passages, self._options.bm25_options))
        return await self._kept[question_id].search(query, k=k)

    async def _by_okapi(self, query: str, k: int, question_id: str, passages: list[Passage]) -> list[Hit]:
        return _best(passages, okapi_scores(query, [f"Title: {passage.title}\nText: {passage.text}" for passage in passages]), k)

    async def _by_embeddings(self, query: str, k: int, question_id: str, passages: list[Passage]) -> list[Hit]:
        import numpy as np

        if question_id not in self._kept:
            vectors = await asyncio.gather(*(self._encode(("passage", searched_text(passage))) for passage in passages))
            self._keep(question_id, np.stack(vectors))
        of_query = await self._encode(("query", query))
        return _best(passages, (self._kept[question_id] @ of_query).tolist(), k)

    def _keep(self, question_id: str, value: Any) -> None:
        if len(self._kept) >= _MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[question_id] = value

    def _encode_all(self, texts: Sequence[tuple[str, str]]) -> list[Any]:
        """A unit vector for each (kind, text)."""
        import numpy as np

        vectors: dict[tuple[str, str], Any] = {}
        for kind, encode in (("passage", self._encoder.passages), ("query", self._encoder.queries)):
            wanted = list(dict.fromkeys(text for text in texts if text[0] == kind))
            if wanted:
                encoded = encode([text for _, text in wanted])
                encoded /= np.linalg.norm(encoded, axis=1, keepdims=True).clip(1e-12)
                vectors |= zip(wanted, encoded, strict=True)
        return [vectors[text] for text in texts]


def okapi_scores(query: str, texts: Sequence[str]) -> list[float]:
    """The scores of rank_bm25's BM25Okapi, as RQ-RAG's `bm25_candidates` uses it; any of them may be 0 or less.

    Words are split at single spaces, and keep their case and punctuation. A word in more than half of the few texts would score negative
    without `_EPSILON`.
    """
    counts = [Counter(text.split(" ")) for text in texts]
    lengths = [sum(count.values()) for count in counts]
    mean_length = sum(lengths) / len(lengths)
    idf = _inverse_frequencies(counts)
    return [
        sum(
            idf.get(word, 0.0) * count[word] * (_K1 + 1) / (count[word] + _K1 * (1 - _B + _B * length / mean_length))
            for word in query[:_MOST_CHARACTERS].split(" ")
        )
        for count, length in zip(counts, lengths, strict=True)
    ]


def _inverse_frequencies(counts: Sequence[Counter[str]]) -> dict[str, float]:
    """The inverse document frequency of every word. A negative one, of a word in most texts, becomes a quarter of the mean."""
    frequencies = Counter(word for count in counts for word in count)
    idf = {word: math.log(len(counts) - frequency + 0.5) - math.log(frequency + 0.5) for word, frequency in frequencies.items()}
    floor = _EPSILON * sum(idf.values()) / len(idf)
    return {word: floor if value < 0 else value for word, value in idf.items()}


def _best(passages: list[Passage], scores: list[float], k: int) -> list[Hit]:
    """The `k` hits with the highest scores. Ties keep their order, as in the authors' sort."""
    order = sorted(range(len(passages)), key=lambda position: -scores[position])
    return [Hit(passages[position], scores[position]) for position in order[:k]]


def build(config: RetrieverConfig, options: Options) -> Candidates:
    """A retriever without a corpus: the questions come with their passages."""
    return Candidates(options)


RETRIEVER = RetrieverPlugin(build, Options)
