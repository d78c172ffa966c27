"""Annotations of a dataset for tasks without a teacher: sub-questions that can be searched, and the search."""

from distill.label_context import LabelContext
from distill.steps.relation_notation import worded
from distill.teacher.teacher import RejectedRow
from refinery.contract.records import Passage, Question, SubQuestion
from refinery.contract.sub_questions import resolved_step
from refinery.errors import RecordError


def searchable_steps(question: Question, relations: str) -> list[SubQuestion]:
    """The annotated sub-questions, with references such as `#1` replaced by earlier answers, and worded as `relations` wants them.

    Sub-questions that do not need a passage (StrategyQA's operations), or that refer to an answer without annotation, are left out.
    """
    steps = worded(question.decomposition or [], relations)
    resolved = [resolved_step(steps, number) for number in range(len(steps))]
    return [step for step in resolved if step and step.supporting != []]


def sufficient_passages(question: Question, relations: str) -> dict[str, set[str]]:
    """Ids of the passages that alone are enough, for the question and each sub-question that needs a search; none if not annotated."""
    of_steps = [set(step.supporting) for step in question.decomposition or [] if step.supporting]
    if not of_steps and not question.supporting:
        return {}
    return _of_steps(question, relations, set.intersection(*of_steps) if of_steps else set(question.supporting or []))


def supporting_passages(question: Question, relations: str) -> dict[str, set[str]]:
    """Ids of all passages that the answer needs, for the question and each sub-question that needs a search; none if not annotated."""
    return _of_steps(question, relations, set(question.supporting)) if question.supporting else {}


def _of_steps(question: Question, relations: str, of_question: set[str]) -> dict[str, set[str]]:
    found = {question.text: of_question}
    for step in searchable_steps(question, relations):
        if step.supporting:
            found.setdefault(step.text, set()).update(step.supporting)
    return found


async def search_own(query: str, question: Question, context: LabelContext) -> list[Passage]:
    """Passages for a query, best first. Raises RejectedRow if the question has no passages to search."""
    try:
        return await context.search(query, question)
    except RecordError as error:
        raise RejectedRow("no_passages", str(error)) from None
