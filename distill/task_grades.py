"""How a label task's labels are compared with annotations, question by question.

A label task declares a Grader. With one of your own, `refinery evaluate-labels` measures your task too:

    async def grade(question: Question, outcome: Outcome, context: GradingContext) -> dict[str, Graded]:
        pairs = [(row.label == "hard", question.type == "3hop") for row in labels_of(outcome)]
        return {"hops": graded_labels(pairs, missed=is_rejected(outcome) and question.type == "3hop")}

    LABEL_TASK = LabelTask(label, Options, grader=Grader(DifficultyLabel, grade))
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distill.teacher.teacher import RejectedRow
from refinery.contract.records import KnowledgeLabel, Passage, Question, Record
from refinery.metrics.graded import Graded
from refinery.retrievers.base import Retriever

_SEARCHED = 3  # passages that a reader is shown, as in RQ-RAG Sec. 3.3


@dataclass(frozen=True, slots=True)
class GradingContext:
    """What a grader may use besides the question: the task's options, closed-book answers by question id, and a search.

    `retriever` searches the question's own passages, except in runs whose questions have none.
    """

    options: Any
    closed_book: Mapping[str, KnowledgeLabel]
    retriever: Retriever

    async def search(self, query: str, question: Question | None, *, k: int = _SEARCHED) -> list[Passage]:
        """The `k` best passages for a query."""
        return [hit.passage for hit in await self.retriever.search(query, k=k, question=question)]


Outcome = Sequence[Any] | RejectedRow
Grade = Callable[[Any, Outcome, GradingContext], Awaitable[Mapping[str, Graded]]]


@dataclass(frozen=True, slots=True)
class Grader:
    """How a task's labels, which are `record`s, are compared with annotations.

    `grade(question, outcome, context)` gives what the labels are worth by what they are compared with, or nothing for a question that is
    not annotated for this task. Where `annotated` is off, the rows that went into the run are enough.
    """

    record: type[Record]
    grade: Grade
    annotated: bool = True


def labels_of(outcome: Outcome) -> Sequence[Any]:
    """The labels of a question; none if it was rejected."""
    return () if isinstance(outcome, RejectedRow) else outcome


def is_rejected(outcome: Outcome) -> bool:
    """Whether the question got no label."""
    return isinstance(outcome, RejectedRow)
