"""PopQA as released (`popQA.tsv`): questions about Wikidata triples, with the popularity of their subjects on Wikipedia.

`reader: refinery.questions.popqa:LONG_TAIL` reads those about rare subjects only, which Self-RAG and RQ-RAG evaluate on.
"""

import csv
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, Json

from refinery.contract.records import Question
from refinery.errors import RecordError
from refinery.questions.base import DatasetRow, Reader, distinct, iter_dataset, read_dataset
from refinery.runtime.files.text_file import read_text

_LONG_TAIL = 100  # monthly page views; the subjects of the long tail have fewer


class _Row(DatasetRow):
    id: Annotated[str, Field(coerce_numbers_to_str=True)]  # a number on the hub
    question: str
    possible_answers: Json[list[str]]
    s_pop: int


def read(path: Path) -> list[Question]:
    """Read the release file, which is a test set. A question's type is `long_tail` or `popular`."""
    return read_dataset(path, _Row, _to_question, rows=_rows(path), split="test")


def of_rows(path: Path, rows: Iterable[tuple[str, Any]]) -> Iterator[Question]:
    """The questions of (where, values) pairs in the release's columns."""
    return iter_dataset(path, _Row, lambda row: [_to_question(row)], rows=rows)


def popularity(s_pop: int) -> str:
    """The type of a question, from the monthly page views of its subject."""
    return "long_tail" if s_pop < _LONG_TAIL else "popular"


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    table = csv.DictReader(StringIO(read_text(path), newline=""), delimiter="\t", restkey="cells beyond the last column")
    try:
        for row in table:
            yield f"{path}:{table.line_num}", {name: value for name, value in row.items() if value is not None}
    except csv.Error as error:
        raise RecordError(f"{path}:{table.line_num + 1}: not a row of a TSV table ({error}).") from None


def _to_question(row: _Row) -> Question:
    return Question(
        id=row.id, text=row.question.strip(), answers=distinct(row.possible_answers), type=popularity(row.s_pop), dataset="popqa"
    )


def _rare(questions: Iterable[Question]) -> Iterator[Question]:
    return (question for question in questions if question.type == "long_tail")


READER = Reader(read, of_rows, repositories=("akariasai/PopQA",))
LONG_TAIL = Reader(lambda path: _rare(read(path)), lambda path, rows: _rare(of_rows(path, rows)))
