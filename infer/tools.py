"""What a decoder works with for one question: the model, the search, and the notes it takes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from infer.trace import Cost, Prediction, ScoredPassage, TraceStep
from refinery.llms.base import LLM, Context, Usage
from refinery.records import Passage, Question, Trajectory
from refinery.retrievers.base import Hit, Retriever
from refinery.segments import Segment


@dataclass(slots=True)
class Tools:
    """One question's model, retriever and notebook; every decoder step goes through it, so costs and traces are complete."""

    question: Question
    llm: LLM
    retriever: Retriever | None
    passages_per_query: int
    adapters: frozenset[str] = frozenset()
    max_new_tokens: int = 32
    usage: Usage = field(default_factory=Usage)
    retrievals: int = 0
    trace: list[TraceStep] = field(default_factory=list)

    def context(self, prompt: str | Sequence[Segment]) -> Context:
        """A fresh context whose cost is this question's."""
        return self.llm.context(prompt, usage=self.usage)

    def adapter(self, role: str) -> str | None:
        """The adapter trained for a role, or None where the bare model plays it."""
        return role if role in self.adapters else None

    async def search(self, query: str, *, depth: int = 0) -> list[Passage]:
        """Passages for a query, best first."""
        assert self.retriever is not None
        self.retrievals += 1
        hits = await self.retriever.search(query, k=self.passages_per_query, question=self.question)
        self.note("retrieve", query, depth=depth, passages=hits)
        return [hit.passage for hit in hits]

    async def answer(self, name: str, prompt: str, question: str, *, depth: int = 0) -> str:
        """The base model's answer to a prompt."""
        generation = await self.context(prompt).generate(max_new_tokens=self.max_new_tokens)
        self.note(
            name,
            question,
            depth=depth,
            text=generation.text,
            token_ids=generation.token_ids,
            logprobs=generation.logprobs,
        )
        return generation.text

    def note(self, name: str, question: str, *, depth: int, passages: Sequence[Hit] | None = None, **values: Any) -> None:
        """Write one step into the trace."""
        found = (
            [ScoredPassage(**h.passage.model_dump(), retrieval_score=h.retrieval_score) for h in passages] if passages is not None else None
        )
        self.trace.append(TraceStep(name=name, depth=depth, question=question, passages=found, **values))

    def prediction(self, answer: str, *, paths: Sequence[Trajectory] = (), selected: dict[str, str] | None = None) -> Prediction:
        """Close the question with its answer."""
        usage = self.usage
        return Prediction(
            question_id=self.question.id,
            question=self.question.text,
            answer=answer,
            trace=self.trace,
            cost=Cost(
                calls=usage.calls,
                retrievals=self.retrievals,
                prefill_tokens=usage.prefill_tokens,
                decode_tokens=usage.decode_tokens,
            ),
            paths=list(paths),
            selected=selected or {},
        )
