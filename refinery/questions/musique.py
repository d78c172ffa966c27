"""MuSiQue-Ans as released (`musique_ans_v1.0_*.jsonl`): twenty paragraphs per question, and a decomposition with `#1` references.

About half of the sub-questions read like `Anna Benson >> spouse`; they are kept unchanged.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from refinery.contract.records import Passage, Question, SubQuestion
from refinery.questions.base import DatasetRow, Reader, distinct, iter_dataset, read_dataset


class _Paragraph(DatasetRow):
    idx: int
    title: str
    paragraph_text: str
    is_supporting: bool


class _Hop(DatasetRow):
    question: str
    answer: str
    paragraph_support_idx: int | None


class _Row(DatasetRow):
    id: str
    question: str
    answer: str
    answer_aliases: list[str]
    paragraphs: list[_Paragraph]
    question_decomposition: list[_Hop]


def read(path: Path) -> list[Question]:
    """Read a release file. A question's type is its number of hops, as in `3hop`."""
    return read_dataset(path, _Row, _to_question)


def of_rows(path: Path, rows: Iterable[tuple[str, Any]]) -> Iterator[Question]:
    """The questions of (where, values) pairs in the release's columns."""
    return iter_dataset(path, _Row, lambda row: [_to_question(row)], rows=rows)


def _to_question(row: _Row) -> Question:
    return Question(
        id=row.id,
        text=row.question.strip(),
        answers=distinct([row.answer, *row.answer_aliases]),
        passages=[Passage(id=f"{row.id}:{p.idx}", title=p.title, text=p.paragraph_text) for p in row.paragraphs],
        supporting=[f"{row.id}:{p.idx}" for p in row.paragraphs if p.is_supporting],
        decomposition=[_sub_question(row, hop) for hop in row.question_decomposition],
        type=f"{len(row.question_decomposition)}hop",
        dataset="musique",
    )


def _sub_question(row: _Row, hop: _Hop) -> SubQuestion:
    index = hop.paragraph_support_idx
    return SubQuestion(text=hop.question.strip(), answer=hop.answer, supporting=None if index is None else [f"{row.id}:{index}"])


READER = Reader(read, of_rows, ("question_decomposition",))
