"""What a dataset's own annotations give the tasks that need no teacher: sub-questions that can be searched, and the search."""

import re
from collections.abc import Sequence

from distill.bench import Bench
from distill.teacher import RejectedRow
from refinery.errors import RecordError
from refinery.records import Passage, Question, SubQuestion
from refinery.sub_models import fill_references


def searchable_steps(question: Question) -> list[SubQuestion]:
    """The annotated sub-questions with earlier answers in place of `#1`.

    Left out are those that need no passage (StrategyQA's operations) and those that refer to an answer nobody annotated.
    """
    steps = question.decomposition or []
    answers = [step.answer for step in steps]
    return [
        step.model_copy(update={"text": fill_references(step.text, [answer or "" for answer in answers[:number]])})
        for number, step in enumerate(steps)
        if step.supporting != [] and _can_be_filled(step.text, answers[:number])
    ]


def _can_be_filled(text: str, answers: Sequence[str | None]) -> bool:
    referred = [int(number) for number in re.findall(r"#(\d+)", text)]
    return all(0 < number <= len(answers) and answers[number - 1] for number in referred)


async def search_own(query: str, question: Question, bench: Bench) -> list[Passage]:
    """Passages for a query, best first. Raises RejectedRow when the question brings none to search."""
    try:
        return await bench.search(query, question)
    except RecordError as error:
        raise RejectedRow("no_passages", str(error)) from None
