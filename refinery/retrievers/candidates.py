"""BM25 over each question's own passages, as the multi-hop datasets give them (RQ-RAG's `bm25_candidates`)."""

from collections.abc import Sequence

from refinery.errors import RecordError
from refinery.records import Passage, Question
from refinery.retrievers.base import Hit
from refinery.retrievers.bm25 import Bm25


class Candidates:
    """One small index per question, built when it is first searched."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._indexes: dict[str, Bm25] = {}

    async def search(self, query: str, *, k: int, question: Question | None = None) -> list[Hit]:
        """The `k` best of the question's own passages. Raises RecordError when it has none."""
        if question is None or not question.passages:
            raise RecordError("retriever candidates: the question brings no passages of its own. Use retriever bm25 with a corpus.")
        if question.id not in self._indexes:
            self._indexes[question.id] = Bm25(question.passages)
        return await self._indexes[question.id].search(query, k=k)


build = Candidates
