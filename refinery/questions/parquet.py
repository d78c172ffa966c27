"""Questions in Parquet, with the columns of `Question`, such as `refinery distill` writes for its own questions."""

from collections.abc import Iterator
from pathlib import Path

from refinery.contract.records import Question
from refinery.errors import RecordError
from refinery.questions.base import parse_row
from refinery.runtime.bad_rows import bad_row, end_of_rows
from refinery.runtime.hub_dataset import without_nulls

_ROWS_PER_BATCH = 2_000


def read(path: Path) -> Iterator[Question]:
    """The rows, read in batches. Raises RecordError naming the faulty row and column, and for a file that is not Parquet."""
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
    except (OSError, ArrowInvalid) as error:
        raise RecordError(f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]}).") from None
    rows = (row for batch in file.iter_batches(_ROWS_PER_BATCH) for row in batch.to_pylist())
    for number, row in enumerate(rows, 1):
        try:
            yield parse_row(without_nulls(row), Question, where=f"{path}: row {number}")
        except RecordError as error:
            bad_row(error, path, number)
    end_of_rows(path, file.metadata.num_rows)
