"""ComplexWebQuestions as released (`ComplexWebQuestions_dev.json`, answers with aliases), or with one `answer` a row."""

from pathlib import Path

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, distinct, read_dataset


class _Answer(DatasetRow):
    answer: str | None  # some entities have only aliases
    aliases: list[str] = []


class _Row(DatasetRow):
    ID: str
    question: str
    compositionality_type: str
    answers: list[_Answer] = []
    answer: str | None = None


def read(path: Path) -> list[Question]:
    """Read a release file. A question's type is how it was composed. The released test set has no answers."""
    return read_dataset(path, _Row, _to_question)


def _to_question(row: _Row) -> Question:
    named = [row.answer, *(name for answer in row.answers for name in (answer.answer, *answer.aliases))]
    return Question(
        id=row.ID,
        text=row.question.strip(),
        answers=distinct(name for name in named if name),
        type=row.compositionality_type,
        dataset="cwq",
    )
