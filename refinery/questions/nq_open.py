"""NQ-open as released (`NQ-open.*.jsonl`): a question and its short answers, without ids."""

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, reader_of


class _Row(DatasetRow):
    question: str
    answer: list[str]


def _to_question(row: _Row) -> Question:
    return Question(id="", text=row.question.strip(), answers=row.answer, dataset="nq_open")


READER = reader_of(_Row, _to_question, repositories=("google-research-datasets/nq_open",))
