"""Retrieval modules: the passages that remain of the first search, for the question itself (MIGRES App. A, Table 10).

The texts are those of the passages that passed, each with its id as `cited`, or if none passed, the model's own knowledge. A text is
positive if it contains the answer of an annotated sub-question, or without sub-questions, the question's answer (DPR's has_answer).
"""

from collections.abc import Mapping, Sequence

from infer.modules.kinds.base import Case, ModuleKind, unparsed
from infer.modules.kinds.gold import QUESTIONS, answers_within
from infer.session import Session
from refinery.contract.records import Question
from refinery.contract.trace import TraceStep
from refinery.metrics.graded import Graded
from refinery.metrics.open_domain import dpr_has_answer


async def _cases(question: Question, session: Session) -> list[Case]:
    return [Case(question.text)]


def _grade(question: Question, steps: Sequence[TraceStep]) -> Mapping[str, Graded]:
    """The paper's RR divides `passages` of two runs, its RC is `positive per negative`, and its WR counts questions with `found`."""
    (output,) = (step.output for step in steps if step.output)
    positive = [bool(dpr_has_answer(text, answers_within(question))) for text in output.texts]
    right = sum(positive[: len(output.cited)])
    counts: dict[str, tuple[float, float]] = {
        "passages": (len(output.cited), 1),
        "positive per negative": (right, len(output.cited) - right),
        "found": (any(positive), 1),
    }
    return {QUESTIONS: Graded(counts | {"unparsed": unparsed([output])}, right)}


FIRST_SEARCH = ModuleKind("first_search", "answers", lambda question: bool(question.answers), _cases, _grade)
