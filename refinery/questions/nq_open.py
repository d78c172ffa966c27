"""NQ-open as released (`NQ-open.*.jsonl`): a question and its short answers, without ids."""

from pathlib import Path

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, read_dataset


class _Row(DatasetRow):
    question: str
    answer: list[str]


def read(path: Path) -> list[Question]:
    """Read a release file."""
    return read_dataset(path, _Row, lambda row: Question(id="", text=row.question.strip(), answers=row.answer, dataset="nq_open"))
