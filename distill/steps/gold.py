"""What a dataset's own annotations give the tasks that need no teacher: sub-questions that can be searched, and the search."""

import re
from collections.abc import Sequence

from distill.label_context import LabelContext
from distill.teacher.teacher import RejectedRow
from refinery.contract.records import Passage, Question, SubQuestion
from refinery.contract.sub_questions import fill_references
from refinery.errors import RecordError


def searchable_steps(question: Question) -> list[SubQuestion]:
    """The annotated sub-questions with earlier answers in place of `#1`.

    Left out are those that need no passage (StrategyQA's operations) and those that refer to an answer nobody annotated.
    """
    steps = question.decomposition or []
    resolved = [resolved_step(steps, number) for number in range(len(steps))]
    return [step for step in resolved if step and step.supporting != []]


def resolved_step(steps: Sequence[SubQuestion], number: int) -> SubQuestion | None:
    """Step `number` (from 0) with earlier answers in place of `#1`; None when it refers to an answer nobody annotated."""
    answers, step = [step.answer for step in steps[:number]], steps[number]
    referred = [int(reference) for reference in re.findall(r"#(\d+)", step.text)]
    if not all(0 < reference <= number and answers[reference - 1] for reference in referred):
        return None
    return step.model_copy(update={"text": fill_references(step.text, [answer or "" for answer in answers])})


async def search_own(query: str, question: Question, context: LabelContext) -> list[Passage]:
    """Passages for a query, best first. Raises RejectedRow when the question brings none to search."""
    try:
        return await context.search(query, question)
    except RecordError as error:
        raise RejectedRow("no_passages", str(error)) from None
