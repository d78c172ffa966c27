"""Modules that extract information from passages and cite them (MIGRES Sec. 2.1, Table 1).

They read five passages, drawn from the question's own and those that a search finds, with the question and its annotated sub-questions. A
passage is positive if it contains the answer of a sub-question (DPR's has_answer).
"""

import random
from collections.abc import Mapping, Sequence

from infer.modules.kinds.base import Case, ModuleKind, unparsed
from infer.modules.kinds.gold import answers_within, gold_steps, searched
from infer.modules.kinds.judge import judged_useful
from infer.session import Session
from refinery.contract.module_output import ModuleOutput
from refinery.contract.records import Passage, Question
from refinery.contract.trace import TraceStep
from refinery.metrics.graded import Graded, overlap
from refinery.metrics.open_domain import dpr_has_answer
from refinery.retrievers.base import Hit

CITED, ENTAILING = "cited passages", "cited passages that entail it"
_READ = 5  # Sec. 2.1: "randomly sample 5 passages"


async def _cases(question: Question, session: Session) -> list[Case]:
    found = {hit.passage.id: hit for hit in await searched(question.text, session.passages_per_query, question, session)}
    pool = list(({passage.id: Hit(passage, 0.0) for passage in question.passages or []} | found).values())
    drawn = random.Random(question.id).sample(pool, min(_READ, len(pool)))  # noqa: S311
    text = " ".join([question.text, *(step.text for step in gold_steps(question) if step)])
    return [Case(text, None, drawn)] if drawn else []


def is_positive(passage: Passage, question: Question) -> bool:
    """Whether it contains the answer of one of the annotated sub-questions, or without any, the question's answer."""
    return bool(dpr_has_answer(passage.text, answers_within(question)))


def _grade(question: Question, steps: Sequence[TraceStep]) -> Mapping[str, Graded]:
    lines: dict[str, Graded] = {}
    for step in steps:
        assert step.output is not None
        positive = {passage.id for passage in step.passages or [] if is_positive(passage, question)}
        lines[CITED] = _graded(step.output, positive, range(len(step.output.texts)))
        if step.output.labels or not step.output.texts:
            entailed = [number for number, holds in enumerate(step.output.labels) if holds]
            lines[ENTAILING] = _graded(step.output, positive, entailed)
    return lines


def _graded(output: ModuleOutput, positive: set[str], kept: Sequence[int]) -> Graded:
    """Precision and recall of the passages that the `kept` texts cite, and by the judge, the share of these texts that are useful."""
    cited = {name for number in kept for name in output.cited[number]}
    hits = len(cited & positive)
    counts = overlap(hits, len(cited), len(positive))
    if output.judged:
        counts["judged useful"] = (sum(bool(output.judged[number]) for number in kept), len(kept))
    return Graded(counts | {"unparsed": unparsed([output])}, hits)


EXTRACTION = ModuleKind(
    "extraction", "answers of sub-questions", lambda question: bool(answers_within(question)), _cases, _grade, judged_useful
)
