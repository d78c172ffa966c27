"""ComplexWebQuestions as released (`ComplexWebQuestions_dev.json`, answers with aliases), or with one `answer` a row.

The hub's copy holds `answers` as {answer: [...], aliases: [[...], ...]}.
"""

from typing import Annotated

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, Rows, distinct, reader_of


class _Answer(DatasetRow):
    answer: str | None  # some entities have only aliases
    aliases: list[str] = []


class _Row(DatasetRow):
    ID: str
    question: str
    compositionality_type: str
    answers: Annotated[list[_Answer], Rows] = []
    answer: str | None = None


def _to_question(row: _Row) -> Question:
    """A question's type is how it was composed. The released test set has no answers."""
    named = [row.answer, *(name for answer in row.answers for name in (answer.answer, *answer.aliases))]
    return Question(
        id=row.ID,
        text=row.question.strip(),
        answers=distinct(name for name in named if name),
        type=row.compositionality_type,
        dataset="cwq",
    )


READER = reader_of(_Row, _to_question, repositories=("drt/complex_web_questions",))
