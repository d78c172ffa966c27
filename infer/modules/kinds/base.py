"""The declaration of a kind of module: its inputs, and the grading of its replies."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from infer.session import Session
from refinery.contract.module_output import ModuleOutput
from refinery.contract.records import Passage, Question
from refinery.contract.trace import TraceStep
from refinery.metrics.graded import Graded
from refinery.retrievers.base import Hit


@dataclass(frozen=True, slots=True)
class Case:
    """The input of one call of a module: the question, and depending on its kind, passages and earlier results.

    `step` is the number of the annotated sub-question that the case is about, from 0, or None for the question itself. `given` lists the
    numbers of those whose answers are the `information`; `asked` are the queries so far, and `missing` is the information to find next.
    """

    question: str
    step: int | None = None
    hits: Sequence[Hit] = ()
    given: Sequence[int] = ()
    information: Sequence[str] = ()
    asked: Sequence[str] = ()
    missing: str = ""

    @property
    def passages(self) -> list[Passage]:
        """The passages of the hits."""
        return [hit.passage for hit in self.hits]


async def _as_it_is(case: Case, output: ModuleOutput, question: Question, session: Session) -> ModuleOutput:
    return output


@dataclass(frozen=True, slots=True)
class ModuleKind:
    """The inputs of modules of one kind, and the grading of their replies. All gold comes from annotations.

    `annotated(question)` says whether a question has the annotations that the kind `needs`. `cases(question, session)` makes its cases, and
    may search. `observe(case, output, question, session)` adds the results of a search or a judge to a reply. `grade(question, steps)`
    grades the finished steps, by line of the table. `judged_alone` says that a judge can assess any question.
    """

    name: str
    needs: str
    annotated: Callable[[Question], bool]
    cases: Callable[[Question, Session], Awaitable[list[Case]]]
    grade: Callable[[Question, Sequence[TraceStep]], Mapping[str, Graded]]
    observe: Callable[[Case, ModuleOutput, Question, Session], Awaitable[ModuleOutput]] = _as_it_is
    judged_alone: bool = False


def unparsed(outputs: Sequence[ModuleOutput]) -> tuple[float, float]:
    """The number of cases with an unreadable reply, and of all cases; a case counts once, however many of its replies are unreadable."""
    return sum(output.unread > 0 for output in outputs), len(outputs)
