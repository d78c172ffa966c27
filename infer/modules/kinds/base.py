"""What a kind of modules declares: what they are given, and what their replies are worth."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from infer.session import Session
from refinery.contract.records import Passage, Question
from refinery.contract.trace import ModuleOutput, TraceStep
from refinery.metrics.graded import Graded
from refinery.retrievers.base import Hit


@dataclass(frozen=True, slots=True)
class Case:
    """What a module is given once: what is asked, and as far as its kind gives them, passages and earlier results.

    `step` is the number of the annotated sub-question that the case is about, from 0, or None for the question itself. `given` numbers
    those whose answers are the `information`; `asked` are the queries so far, and `missing` is what is to be found next.
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
    """What modules of one kind are given, and what their replies are worth. All gold comes from annotations.

    `annotated(question)` says whether a question has those that the kind `needs`. `cases(question, session)` makes its cases, and may
    search. `observe(case, output, question, session)` adds what a search or a judge makes of a reply. `grade(question, steps)` grades the
    finished steps, by what they are measured on. `judged_alone` says that a judge can be asked about any question.
    """

    name: str
    needs: str
    annotated: Callable[[Question], bool]
    cases: Callable[[Question, Session], Awaitable[list[Case]]]
    grade: Callable[[Question, Sequence[TraceStep]], Mapping[str, Graded]]
    observe: Callable[[Case, ModuleOutput, Question, Session], Awaitable[ModuleOutput]] = _as_it_is
    judged_alone: bool = False


def unparsed(outputs: Sequence[ModuleOutput]) -> tuple[float, float]:
    """In how many cases a reply could not be read, and of how many; a case counts once, however many of its replies are unreadable."""
    return sum(output.unread > 0 for output in outputs), len(outputs)
