"""GrailQA as released (`grailqa_v1.0_dev.json`): questions over Freebase; an answer is an entity's name, or a value.

The hub's copy holds `answer` as {answer_argument: [...], entity_name: [...]}, where a value has an empty name.
"""

from typing import Annotated

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, Rows, distinct, reader_of


class _Answer(DatasetRow, coerce_numbers_to_str=True):
    answer_argument: str
    entity_name: str | None = None


class _Row(DatasetRow, coerce_numbers_to_str=True):
    qid: str
    question: str
    answer: Annotated[list[_Answer], Rows] = []  # the public test set has none
    level: str | None = None


def _to_question(row: _Row) -> Question:
    """A question's type is its level of generalization: i.i.d., compositional or zero-shot."""
    answers = distinct(answer.entity_name or answer.answer_argument for answer in row.answer)
    return Question(id=row.qid, text=row.question.strip(), answers=answers, type=row.level, dataset="grailqa")


READER = reader_of(_Row, _to_question, repositories=("dki-lab/grail_qa",))
