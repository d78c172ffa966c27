"""GrailQA as released (`grailqa_v1.0_dev.json`): questions over Freebase; an answer is an entity's name, or a value."""

from pathlib import Path

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, distinct, read_dataset


class _Answer(DatasetRow, coerce_numbers_to_str=True):
    answer_argument: str
    entity_name: str | None = None


class _Row(DatasetRow, coerce_numbers_to_str=True):
    qid: str
    question: str
    answer: list[_Answer] = []  # the public test set has none
    level: str | None = None


def read(path: Path) -> list[Question]:
    """Read a release file. A question's type is its level of generalization: i.i.d., compositional or zero-shot."""
    return read_dataset(path, _Row, _to_question)


def _to_question(row: _Row) -> Question:
    answers = distinct(answer.entity_name or answer.answer_argument for answer in row.answer)
    return Question(id=row.qid, text=row.question.strip(), answers=answers, type=row.level, dataset="grailqa")
