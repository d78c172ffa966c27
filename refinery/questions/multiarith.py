"""MultiArith as released (`MultiArith.json`): word problems with one number as the answer."""

from pathlib import Path

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, read_dataset


class _Row(DatasetRow, coerce_numbers_to_str=True):
    iIndex: str
    sQuestion: str
    lSolutions: list[float]


def read(path: Path) -> list[Question]:
    """Read the release file, which is a test set. Whole numbers lose their `.0`."""
    return read_dataset(path, _Row, _to_question, split="test")


def _to_question(row: _Row) -> Question:
    answers = [str(int(number)) if number.is_integer() else str(number) for number in row.lSolutions]
    return Question(id=row.iIndex, text=row.sQuestion.strip(), answers=answers, dataset="multiarith")
