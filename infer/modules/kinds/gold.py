"""Annotated sub-questions in the form that modules receive: readable, with earlier answers filled in."""

from collections.abc import Iterator, Sequence

from infer.session import Session
from refinery.contract.records import Question, SubQuestion
from refinery.contract.relation_notation import readable
from refinery.contract.sub_questions import resolved_step
from refinery.metrics.open_domain import dpr_has_answer
from refinery.retrievers.base import Hit

SUB_QUESTIONS, QUESTIONS = "annotated sub-questions", "questions"  # the subject of a line of the table


def gold_steps(question: Question) -> list[SubQuestion | None]:
    """Each annotated sub-question with earlier answers filled in, and relations as questions; None if an answer is not annotated."""
    steps = readable(question.decomposition or [])
    return [resolved_step(steps, number) for number in range(len(steps))]


def known_parts(question: Question) -> Iterator[tuple[int | None, SubQuestion]]:
    """The question itself (None), and each of its sub-questions that can be asked, as sub-questions with answers and passages."""
    yield None, SubQuestion(text=question.text, answer=question.answers[0] if question.answers else None, supporting=question.supporting)
    yield from ((number, step) for number, step in enumerate(gold_steps(question)) if step and step.supporting != [])


def answers_of(question: Question, step: int | None) -> list[str]:
    """The gold answers of the question (None) or of one of its sub-questions."""
    if step is None:
        return question.answers
    answer = (question.decomposition or [])[step].answer
    return [answer] if answer else []


def answers_within(question: Question) -> list[str]:
    """The answers of the annotated sub-questions, or without any, of the question."""
    return [step.answer for step in question.decomposition or [] if step.answer] or question.answers


def supporting_of(question: Question, step: int | None) -> list[str]:
    """The ids of the passages that the question (None) or one of its sub-questions needs."""
    return (question.supporting if step is None else (question.decomposition or [])[step].supporting) or []


def told(question: Question, count: int) -> list[str] | None:
    """The first `count` sub-questions with their answers as statements, as in MIGRES Sec. 2.1; None if one has no answer."""
    steps = gold_steps(question)[:count]
    if not all(step and step.answer for step in steps):
        return None
    return [f"{step.text} {step.answer}" for step in steps if step]


def open_steps(question: Question, given: Sequence[int]) -> list[int]:
    """The sub-questions without a given answer that can be asked with the given answers."""
    plain = question.decomposition or []
    known = [step if number in given else step.model_copy(update={"answer": None}) for number, step in enumerate(plain)]
    return [number for number in range(len(plain)) if number not in given and resolved_step(known, number)]


def leaks(text: str, question: Question, given: Sequence[int], shown: Sequence[str]) -> bool:
    """Whether a text states an answer of a sub-question that is not given, and that nothing shown to the module contains."""
    hidden = [step.answer for number, step in enumerate(question.decomposition or []) if number not in given and step.answer]
    return any(dpr_has_answer(text, [answer]) and not any(dpr_has_answer(one, [answer]) for one in shown) for answer in hidden)


async def searched(query: str, k: int, question: Question, session: Session) -> list[Hit]:
    """The `k` best hits for a query that is not part of the module, so it does not count as its search."""
    assert session.retriever is not None, "a decoder with such a module needs a retriever"
    return await session.retriever.search(query, k=k, question=question)


async def found_ids(query: str, k: int, question: Question, session: Session) -> list[str]:
    """The ids of `searched`, best first."""
    return [hit.passage.id for hit in await searched(query, k, question, session)] if query.strip() else []
