"""Questions in Parquet, with the columns of `Question`, such as `refinery distill` writes for its own questions."""

from collections.abc import Iterator
from pathlib import Path

from refinery.contract.records import Question
from refinery.errors import RecordError
from refinery.questions.base import parse_row
from refinery.runtime.files.parquet import parquet_rows
from refinery.runtime.run.bad_rows import bad_row, end_of_rows


def read(path: Path) -> Iterator[Question]:
    """The rows, read in batches. Raises RecordError naming the faulty row and column, and for a file that is not Parquet."""
    number = 0
    for number, (where, values) in enumerate(parquet_rows(path), 1):
        try:
            yield parse_row(values, Question, where=where)
        except RecordError as error:
            bad_row(error, path, number)
    end_of_rows(path, number)
