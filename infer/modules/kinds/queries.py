"""Query writers: given the first annotated answers and the missing information, does the next search find a passage that is needed next?"""

from collections.abc import Mapping, Sequence

from infer.modules.kinds.base import Case, ModuleKind, unparsed
from infer.modules.kinds.gold import found_ids, gold_steps, leaks, open_steps, supporting_of, told
from infer.session import Session
from refinery.contract.module_output import ModuleOutput
from refinery.contract.records import Question
from refinery.contract.trace import TraceStep
from refinery.metrics.graded import Graded

# The search text of each line of the table.
WRITTEN, ANNOTATED, QUESTION = "search: what it wrote", "search: the annotated sub-question", "search: the question"
RANKS = (1, 5)  # passages of each search among which a needed one counts as found


async def _cases(question: Question, session: Session) -> list[Case]:
    """One case for each sub-question that needs a search and can be asked after the ones before it."""
    steps = gold_steps(question)
    return [
        Case(question.text, number, (), range(number), info, _asked(question, number), step.text)
        for number, step in enumerate(steps)
        if step and step.supporting and (info := told(question, number)) is not None
    ]


def _asked(question: Question, count: int) -> list[str]:
    """The earlier queries: the question, which the first search uses, and the sub-questions before this one."""
    return [question.text, *(step.text for step in gold_steps(question)[:count] if step)]


async def _observe(case: Case, output: ModuleOutput, question: Question, session: Session) -> ModuleOutput:
    return await add_found(output.texts, case, output, question, session)


async def add_found(texts: Sequence[str], case: Case, output: ModuleOutput, question: Question, session: Session) -> ModuleOutput:
    """The output with the search results of its texts, of the next annotated sub-question and of the question itself."""
    wanted = [number for number in open_steps(question, case.given) if supporting_of(question, number)]
    steps = gold_steps(question)
    if session.retriever is None or not wanted or (step := steps[wanted[0]]) is None:
        return output
    by_text = {WRITTEN: list(texts), ANNOTATED: [step.text], QUESTION: [question.text]}
    found = {name: [await found_ids(text, max(RANKS), question, session) for text in some] for name, some in by_text.items()}
    return output.model_copy(update={"found": found})


def graded_searches(question: Question, outputs: Sequence[ModuleOutput]) -> dict[str, Graded]:
    """The share of cases in which a search finds a passage of a sub-question that can be asked now and is not answered yet."""
    searched = [output for output in outputs if output.found]
    return {name: _graded(question, searched, name) for name in (WRITTEN, ANNOTATED, QUESTION)} if searched else {}


def _graded(question: Question, outputs: Sequence[ModuleOutput], name: str) -> Graded:
    hits = [[_is_hit(question, output, output.found[name], rank) for output in outputs] for rank in RANKS]
    counts: dict[str, tuple[float, float]] = {
        f"found@{rank}": (sum(of_rank), len(outputs)) for rank, of_rank in zip(RANKS, hits, strict=True)
    }
    return Graded(counts | {"searches": (sum(len(output.found[name]) for output in outputs), len(outputs))}, sum(hits[-1]))


def _is_hit(question: Question, output: ModuleOutput, found: Sequence[Sequence[str]], rank: int) -> bool:
    wanted = {name for number in open_steps(question, output.given) for name in supporting_of(question, number)}
    return any(not wanted.isdisjoint(ids[:rank]) for ids in found)


def _grade(question: Question, steps: Sequence[TraceStep]) -> Mapping[str, Graded]:
    outputs = [step.output for step in steps if step.output]
    written = [(text, output.given) for output in outputs for text in output.texts]
    leaked = [
        leaks(text, question, given, [*_asked(question, len(given) + 1), *(told(question, len(given)) or [])]) for text, given in written
    ]
    lines = graded_searches(question, outputs)
    if WRITTEN in lines:
        extra = {"leaked": (sum(leaked), len(leaked)), "unparsed": unparsed(outputs)}
        lines[WRITTEN] = Graded(dict(lines[WRITTEN].counts) | extra, lines[WRITTEN].correct)
    return lines


QUERIES = ModuleKind(
    "queries", "sub-questions with their passages", lambda q: any(s.supporting for s in q.decomposition or []), _cases, _grade, _observe
)
