"""Decomposers: are a question's sub-questions the annotated ones, and does searching with them find the passages that it needs?"""

from collections.abc import Mapping, Sequence

from infer.modules.kinds.base import Case, ModuleKind, unparsed
from infer.modules.kinds.gold import SUB_QUESTIONS, found_ids, gold_steps
from infer.modules.kinds.judge import judged_consistent
from infer.session import Session
from refinery.contract.module_output import ModuleOutput
from refinery.contract.records import Question
from refinery.contract.sub_questions import fill_references
from refinery.contract.trace import TraceStep
from refinery.metrics.graded import Graded, overlap
from refinery.metrics.sub_questions import best_match

# The search text of each line of the table.
MEANING = "meaning of the question"  # RA-ISF Sec. 5.5
ITS_OWN, ANNOTATED, QUESTION = "search: its sub-questions", "search: annotated sub-questions", "search: the question"


async def _cases(question: Question, session: Session) -> list[Case]:
    return [Case(question.text)]


async def _observe(case: Case, output: ModuleOutput, question: Question, session: Session) -> ModuleOutput:
    """Add the results of searching with each sub-question, its references filled in with annotated answers, and of the baselines."""
    output = await judged_consistent(case, output, question, session)
    if session.retriever is None or not question.supporting:
        return output
    k, steps = session.passages_per_query, [step for step in gold_steps(question) if step and step.supporting]
    filled = _filled(output.texts, question)
    found = {
        ITS_OWN: [await found_ids(text, k, question, session) for text in filled],
        **({ANNOTATED: [await found_ids(step.text, k, question, session) for step in steps]} if steps else {}),
        # As many passages as all annotated sub-questions together can find.
        QUESTION: [await found_ids(question.text, k * max(len(steps), 1), question, session)],
    }
    return output.model_copy(update={"found": found})


def _filled(sub_questions: Sequence[str], question: Question) -> list[str]:
    """The sub-questions with references replaced by the answers of the annotated steps that they are matched with."""
    steps = question.decomposition or []
    matched = best_match(sub_questions, steps)
    answers = [(steps[matched[number][0]].answer or "") if number in matched else "" for number in range(len(sub_questions))]
    return [fill_references(text, answers) for text in sub_questions]


def _grade(question: Question, steps: Sequence[TraceStep]) -> Mapping[str, Graded]:
    lines: dict[str, Graded] = {}
    for output in (step.output for step in steps if step.output):
        if question.decomposition:
            lines[SUB_QUESTIONS] = _aligned(question, output)
        if output.judged:  # effective if each sub-question is consistent in meaning
            lines[MEANING] = Graded({"judged consistent": (all(output.judged), 1)}, all(output.judged))
        for searched_with, found in output.found.items():
            ids = {name for of_query in found for name in of_query}
            hits, wanted = len(ids.intersection(question.supporting or [])), len(set(question.supporting or []))
            counts = {"coverage": (hits, wanted), "whole": (hits == wanted, 1), "searches": (len(found), 1)}
            lines[searched_with] = Graded(counts, hits)
    return lines


def _aligned(question: Question, output: ModuleOutput) -> Graded:
    """Precision and recall by token F1, as `evaluate-labels` measures them; a reply without sub-questions has recall 0."""
    annotated = question.decomposition or []
    hits = sum(score for _, score in best_match(output.texts, annotated).values())
    counts = overlap(hits, len(output.texts), len(annotated))
    counts |= {"same count": (len(output.texts) == len(annotated), 1)}
    return Graded(counts | {"unparsed": unparsed([output])}, hits)


def _annotated(question: Question) -> bool:
    return bool(question.decomposition or question.supporting)


DECOMPOSITION = ModuleKind("decomposition", "sub-questions or supporting passages", _annotated, _cases, _grade, _observe, judged_alone=True)
