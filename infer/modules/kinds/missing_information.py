"""Modules that answer from information or state the missing information (MIGRES Sec. 2.1, Table 2).

They receive the annotated answers of the first sub-questions: of none, of one, and so on up to all.
"""

from collections.abc import Mapping, Sequence

from infer.modules.kinds.base import Case, ModuleKind, unparsed
from infer.modules.kinds.gold import leaks, told
from infer.modules.kinds.judge import judged_aligned, judged_answers
from infer.modules.kinds.queries import add_found, graded_searches
from infer.session import Session
from refinery.contract.module_output import ModuleOutput
from refinery.contract.records import Question
from refinery.contract.trace import TraceStep
from refinery.metrics.graded import Graded
from refinery.metrics.open_domain import dpr_has_answer
from refinery.metrics.squad import exact_match, token_f1

ALL, PARTIAL = "all information", "part of the information"


async def _cases(question: Question, session: Session) -> list[Case]:
    steps = question.decomposition or []
    known = [(count, told(question, count)) for count in range(len(steps) + 1)]
    return [Case(question.text, given=range(count), information=info) for count, info in known if info is not None]


async def _observe(case: Case, output: ModuleOutput, question: Question, session: Session) -> ModuleOutput:
    """Add the judge's verdict, and the results of a search with the missing information."""
    if len(case.given) == len(question.decomposition or []):
        return await judged_answers(case, output, question, session)
    if output.labels != [False]:
        return output
    return await add_found(output.texts, case, await judged_aligned(case, output, question, session), question, session)


def _grade(question: Question, steps: Sequence[TraceStep]) -> Mapping[str, Graded]:
    outputs = [step.output for step in steps if step.output]
    count = len(question.decomposition or [])
    whole, partial = [o for o in outputs if len(o.given) == count], [o for o in outputs if len(o.given) < count]
    lines = {ALL: _of_all(question, whole)} if whole and question.answers else {}
    if partial:
        lines[PARTIAL] = _of_part(question, partial)
    return lines | graded_searches(question, partial)


def _of_all(question: Question, outputs: Sequence[ModuleOutput]) -> Graded:
    """Acc_All: the share of right answers; an answer of "unanswerable" is wrong."""
    said = [output.texts[0] if output.labels == [True] else "" for output in outputs]
    right = sum(exact_match(text, question.answers) for text in said)
    counts: dict[str, tuple[float, float]] = {
        "EM": (right, len(said)),
        "F1": (sum(token_f1(text, question.answers) for text in said), len(said)),
        "contains": (sum(dpr_has_answer(text, question.answers) for text in said), len(said)),
    }
    if any(output.judged for output in outputs):
        verdicts = [output.labels == [True] and any(output.judged) for output in outputs]
        counts["judged right"] = (sum(verdicts), len(said))
    return Graded(counts | {"unparsed": unparsed(outputs)}, right)


def _of_part(question: Question, outputs: Sequence[ModuleOutput]) -> Graded:
    """Acc_Partial, the share of "unanswerable"; Match, by the judge; and the share of missing information that states what is missing."""
    without = [output for output in outputs if output.labels == [False]]
    leaked = [leaks(text, question, o.given, [question.text, *(told(question, len(o.given)) or [])]) for o in without for text in o.texts]
    counts: dict[str, tuple[float, float]] = {"unanswerable": (len(without), len(outputs)), "leaked": (sum(leaked), len(leaked))}
    if verdicts := [output.judged[0] for output in without if output.judged]:
        counts["judged match"] = (sum(map(bool, verdicts)), len(without))
    return Graded(counts | {"unparsed": unparsed(outputs)}, len(without))


MISSING_INFORMATION = ModuleKind(
    "missing_information", "sub-questions", lambda question: bool(question.decomposition), _cases, _grade, _observe
)
