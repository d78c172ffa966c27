"""Judges of passages: is each of the passages that a search found for a question or sub-question one of those annotated for it?

RA-ISF's M_rel (Sec. 3.2, App. D) should call a passage relevant if it suffices by itself; for a sub-question, that is the annotated one.
A judge is asked the same about each passage, even for questions without annotations (Sec. 5.5).
"""

from collections.abc import Mapping, Sequence

from infer.modules.kinds.base import Case, ModuleKind
from infer.modules.kinds.gold import QUESTIONS, SUB_QUESTIONS, known_parts, searched, supporting_of
from infer.modules.kinds.judge import ROLE, judged_relevant, judged_the_same
from infer.session import Session
from refinery.contract.module_output import ModuleOutput
from refinery.contract.records import Question
from refinery.contract.trace import TraceStep
from refinery.metrics.graded import Graded, graded_labels


async def _cases(question: Question, session: Session) -> list[Case]:
    """The question and each sub-question, with the passages that it finds."""
    k = session.passages_per_query
    judged = ROLE in session.sub_models
    parts = [(step, part) for step, part in known_parts(question) if part.supporting or (judged and step is None)]
    return [Case(part.text, step, await searched(part.text, k, question, session)) for step, part in parts]


def _grade(question: Question, steps: Sequence[TraceStep]) -> Mapping[str, Graded]:
    by_line = {QUESTIONS: [step for step in steps if _of(step) is None], SUB_QUESTIONS: [step for step in steps if _of(step) is not None]}
    return {line: _graded(question, some) for line, some in by_line.items() if some}


def _of(step: TraceStep) -> int | None:
    assert step.output is not None
    return step.output.step


def _graded(question: Question, steps: Sequence[TraceStep]) -> Graded:
    pairs: list[tuple[bool, bool]] = []
    scored: list[tuple[float, bool]] = []
    outputs = [step.output for step in steps if step.output]
    for step in steps:
        assert step.output is not None
        if not (supporting := supporting_of(question, step.output.step)):
            continue
        gold = [passage.id in supporting for passage in step.passages or []]
        pairs += zip(step.output.labels, gold, strict=True)
        scored += zip(step.output.probabilities, gold, strict=False)
    found = graded_labels(pairs, scored=scored)
    unread = sum(map(_unread, outputs)), sum(len(output.labels) for output in outputs)
    return Graded(dict(found.counts) | {"unparsed": unread} | judged_the_same(outputs), found.correct, scored)


def _unread(output: ModuleOutput) -> int:
    """The number of passages without a readable label: all of them if one unreadable reply judged them all."""
    of_all = len(output.labels) if output.unread else 0
    return min(output.unread, of_all) if output.probabilities else of_all


RELEVANCE = ModuleKind(
    "relevance", "supporting passages", lambda question: bool(question.supporting), _cases, _grade, judged_relevant, judged_alone=True
)
