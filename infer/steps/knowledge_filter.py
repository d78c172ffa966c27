"""MIGRES' Knowledge Filter drops irrelevant passages, and irrelevant sentences from the others (Sec. 3.2, Retrieval Module)."""

from collections.abc import Sequence
from dataclasses import dataclass

from infer.steps.scorers import Scorer
from infer.steps.sentences import split_sentences
from refinery.contract.records import Passage
from refinery.retrievers.base import Hit


@dataclass(frozen=True, slots=True)
class KnowledgeFilter:
    """Keeps passages and sentences that a reranker scores at `threshold` or above; without one, every whole passage in the given order."""

    reranker: Scorer | None
    threshold: float
    sentence_level: bool

    async def keep(self, query: str, passages: Sequence[Passage]) -> list[Hit]:
        """The passages that pass the filter, with their scores; the text of each contains only the sentences that pass.

        Passages and sentences are scored in one call, so that their scores can be compared.
        """
        if self.reranker is None or not passages:
            return [Hit(passage, 1 / position) for position, passage in enumerate(passages, 1)]
        sentences = [split_sentences(passage.text) if self.sentence_level else [] for passage in passages]
        alone = [Passage(id="", text=text) for group in sentences for text in group]
        scores = await self.reranker.score(query, [*passages, *alone])
        of_sentences = iter(scores[len(passages) :])
        scored = [[(text, next(of_sentences)) for text in group] for group in sentences]
        return [
            Hit(self._without_noise(passage, score, group), score)
            for passage, score, group in zip(passages, scores, scored, strict=False)
            if self.passes(score)
        ]

    def passes(self, score: float) -> bool:
        """Whether a passage or a sentence with this score is relevant."""
        return score >= self.threshold

    def _without_noise(self, passage: Passage, passage_score: float, sentences: Sequence[tuple[str, float]]) -> Passage:
        """The passage with only its relevant sentences, or unchanged if it scores higher than each of them."""
        if passage_score > max((score for _, score in sentences), default=float("-inf")):
            return passage
        kept = [text for text, score in sentences if self.passes(score)]
        return passage.model_copy(update={"text": " ".join(kept)})
