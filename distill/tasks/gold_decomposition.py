"""Decompositions from the dataset's own annotation, references such as `#1` kept: no teacher needed."""

from distill.bench import Bench
from distill.teacher import RejectedRow
from refinery.records import Decomposition, Question

NEEDS = ()


async def label(question: Question, bench: Bench) -> list[Decomposition]:
    """The annotated sub-questions, or RejectedRow where there are none (HotpotQA)."""
    if not question.decomposition:
        raise RejectedRow("no_decomposition", f"question {question.id} has no annotated decomposition")
    return [
        Decomposition(
            question_id=question.id,
            question=question.text,
            sub_questions=[step.text for step in question.decomposition],
            provenance=bench.provenance(),
        )
    ]
