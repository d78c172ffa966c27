"""The rows of a Parquet file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from refinery.errors import RecordError
from refinery.runtime.files.hub_dataset import without_nulls

_ROWS_PER_BATCH = 2_000
_INDEX_OF_PANDAS = re.compile(r"__index_level_\d+__")  # a column that pandas adds


def parquet_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """(where, values) of every row, without the nulls of missing fields, read in batches. Raises RecordError for another file."""
    file = _opened(path)
    columns = [name for name in file.schema_arrow.names if not _INDEX_OF_PANDAS.fullmatch(name)]
    rows = (row for batch in file.iter_batches(_ROWS_PER_BATCH, columns=columns) for row in batch.to_pylist())
    for number, row in enumerate(rows, 1):
        yield f"{path}: row {number}", without_nulls(row)


def _opened(path: Path) -> Any:
    arrow: Any = import_module("pyarrow")  # it has no type annotations
    parquet: Any = import_module("pyarrow.parquet")
    try:
        return parquet.ParquetFile(path)
    except (OSError, arrow.ArrowInvalid) as error:
        raise RecordError(f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]}).") from None


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> int:
    """Write rows with the same fields. Returns their count."""
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist([*rows]), path)
    return len(rows)
