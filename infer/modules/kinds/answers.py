"""Readers: do they answer a question or sub-question correctly from its annotated passages?"""

from collections.abc import Mapping, Sequence

from infer.modules.kinds.base import Case, ModuleKind, unparsed
from infer.modules.kinds.gold import QUESTIONS, SUB_QUESTIONS, answers_of, known_parts
from infer.modules.kinds.judge import judged_answers
from infer.session import Session
from refinery.contract.module_output import ModuleOutput
from refinery.contract.records import Question
from refinery.contract.trace import TraceStep
from refinery.metrics.graded import Graded
from refinery.metrics.open_domain import dpr_has_answer
from refinery.metrics.squad import exact_match, token_f1
from refinery.retrievers.base import Hit


async def asked_with_answers(question: Question, session: Session) -> list[Case]:
    """The question and each sub-question, if its answer is annotated, without passages."""
    return [Case(part.text, step) for step, part in known_parts(question) if part.answer]


async def _cases(question: Question, session: Session) -> list[Case]:
    own = {passage.id: passage for passage in question.passages or []}
    parts = [(step, part) for step, part in known_parts(question) if part.answer and part.supporting]
    return [
        Case(part.text, step, [Hit(own[name], 1.0) for name in part.supporting or []])
        for step, part in parts
        if own.keys() >= set(part.supporting or [])
    ]


def by_line(steps: Sequence[TraceStep]) -> dict[str, list[TraceStep]]:
    """The steps about questions, and those about sub-questions."""
    of_questions = [step for step in steps if step.output and step.output.step is None]
    of_parts = [step for step in steps if step.output and step.output.step is not None]
    return {line: some for line, some in ((QUESTIONS, of_questions), (SUB_QUESTIONS, of_parts)) if some}


def grade_answers(question: Question, steps: Sequence[TraceStep]) -> Mapping[str, Graded]:
    """EM, F1, whether the text contains an answer (DPR's has_answer), and a judge's verdict; a reply that cannot be read is wrong."""
    return {line: _graded(question, [step.output for step in some if step.output]) for line, some in by_line(steps).items()}


def _graded(question: Question, outputs: Sequence[ModuleOutput]) -> Graded:
    said = [(output.texts[0] if output.texts else "", answers_of(question, output.step)) for output in outputs]
    right = sum(exact_match(text, answers) for text, answers in said)
    counts: dict[str, tuple[float, float]] = {
        "EM": (right, len(said)),
        "F1": (sum(token_f1(text, answers) for text, answers in said), len(said)),
        "contains": (sum(dpr_has_answer(text, answers) for text, answers in said), len(said)),
    }
    if verdicts := [output.judged[0] for output in outputs if output.judged]:
        counts["judged right"] = (sum(map(bool, verdicts)), len(said))
    return Graded(counts | {"unparsed": unparsed(outputs)}, right)


ANSWERS = ModuleKind(
    "answers",
    "answers and supporting passages",
    lambda question: bool(question.answers and question.supporting and question.passages),
    _cases,
    grade_answers,
    judged_answers,
)
OWN_KNOWLEDGE = ModuleKind(
    "own_knowledge", "answers", lambda question: bool(question.answers), asked_with_answers, grade_answers, judged_answers
)
