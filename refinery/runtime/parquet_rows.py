"""The rows of a Parquet file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from refinery.errors import RecordError
from refinery.runtime.hub_dataset import without_nulls

_ROWS_PER_BATCH = 2_000


def parquet_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """(where, values) of every row, without the nulls of missing fields, read in batches. Raises RecordError for another file."""
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
    except (OSError, ArrowInvalid) as error:
        raise RecordError(f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]}).") from None
    rows = (row for batch in file.iter_batches(_ROWS_PER_BATCH) for row in batch.to_pylist())
    for number, row in enumerate(rows, 1):
        yield f"{path}: row {number}", without_nulls(row)
