"""Rows of one record type as Parquet, with the schema that the record declares, not one guessed from rows.

A column that is null in every row keeps its type, so the files of two runs always fit together. Every column is nullable, because the
hub's readers drop the distinction. A dict with arbitrary keys, or a field with several types, is stored as JSON text.
"""

import types
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from refinery.contract.records import Record
from refinery.errors import RunDirError

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

_ROWS_PER_GROUP = 2_000  # a trajectory with its passages is about 10 kB


def write_parquet(rows: Path, record: type[Record]) -> Path:
    """Write `<name>.parquet` next to `<name>.jsonl`, whose rows are `record`s. Returns its path.

    Raises TypeError for a field whose type has no column.
    """
    with rows.open("rb") as lines:  # bytes split at newlines only; text would also split at U+2028
        return write_rows(lines, rows.with_suffix(".parquet"), record)


def write_rows(lines: Iterable[str | bytes], path: Path, record: type[Record]) -> Path:
    """Write rows, given as JSON, to `path`. Returns it, and raises the same error as `write_parquet`."""
    lines = iter(lines)
    with _writer(path, schema_of(record)) as writer:
        while group := list(islice(lines, _ROWS_PER_GROUP)):
            writer.write_table(_columns(group, record))
    _partial(path).replace(path)
    return path


def join_parquet(parts: Sequence[Path], joined: Path) -> Path:
    """Write the rows of `parts` to one file, in order. Raises RunDirError if two parts have different record types."""
    from pyarrow import parquet

    schemas = [parquet.read_schema(part) for part in parts]
    for part, schema in zip(parts, schemas, strict=True):
        if not schema.equals(schemas[0]):
            raise RunDirError(f"{part}: has other columns than {parts[0]}. Run all shards with one version of Refinery.")
    with _writer(joined, schemas[0]) as writer:
        for part in parts:
            for batch in parquet.ParquetFile(part).iter_batches(_ROWS_PER_GROUP):
                writer.write_batch(batch)
    _partial(joined).replace(joined)
    return joined


@cache
def schema_of(record: type[BaseModel]) -> "pyarrow.Schema":
    """The columns of a record type."""
    import pyarrow

    return pyarrow.schema([(name, _column_type(field.annotation)) for name, field in record.model_fields.items()])


def _writer(path: Path, schema: "pyarrow.Schema") -> "ParquetWriter":
    from pyarrow import parquet

    return parquet.ParquetWriter(_partial(path), schema, compression="zstd")


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def _columns(lines: Sequence[str | bytes], record: type[Record]) -> "pyarrow.Table":
    """JSON rows as columns. Arrow's own reader takes them, because its conversion of Python objects imports pandas first."""
    import io

    from pyarrow import json

    convert = _converter(record) or _as_it_is
    rows = b"\n".join(to_json(convert(from_json(line))) for line in lines)
    reading = json.ReadOptions(block_size=len(rows) + 1, use_threads=False)  # one block, because no row may cross the end of one
    parsing = json.ParseOptions(schema_of(record), unexpected_field_behavior="ignore")
    return json.read_json(io.BytesIO(rows), reading, parsing)


def _as_it_is(value: Any) -> Any:
    return value


@cache
def _converter(annotation: Any) -> Callable[[Any], Any] | None:
    """A function that converts a JSON value for `_column_type(annotation)`; None if pyarrow accepts the value as it is."""
    annotation = _bare_type(annotation)
    if _is_json(annotation):
        return lambda value: None if value is None else to_json(value).decode()
    if get_origin(annotation) is list and (of_item := _converter(get_args(annotation)[0])):
        return lambda value: None if value is None else [of_item(item) for item in value]
    if not _is_record(annotation):
        return None
    converters = {name: found for name, field in annotation.model_fields.items() if (found := _converter(field.annotation))}
    if not converters:
        return None
    return lambda value: None if value is None else value | {name: convert(value.get(name)) for name, convert in converters.items()}


def _column_type(annotation: Any) -> "pyarrow.DataType":
    import pyarrow

    annotation = _bare_type(annotation)
    if _is_json(annotation):
        return pyarrow.string()
    if get_origin(annotation) is list:
        return pyarrow.list_(_column_type(get_args(annotation)[0]))
    if _is_record(annotation):
        return pyarrow.struct(list(schema_of(annotation)))
    simple = {str: pyarrow.string(), bool: pyarrow.bool_(), int: pyarrow.int64(), float: pyarrow.float64()}
    kinds = {type(choice) for choice in get_args(annotation)} if get_origin(annotation) is Literal else {annotation}
    if len(kinds) != 1 or not kinds <= simple.keys():
        raise TypeError(f"no Parquet column for the type {annotation}")
    return simple[kinds.pop()]


def _bare_type(annotation: Any) -> Any:
    """`X` for `X | None` and `Annotated[X, ...]`; any other type unchanged."""
    if get_origin(annotation) is Annotated:
        return _bare_type(get_args(annotation)[0])
    kept = [argument for argument in get_args(annotation) if argument is not type(None)]
    return _bare_type(kept[0]) if _is_union(annotation) and len(kept) == 1 else annotation


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)


def _is_json(annotation: Any) -> bool:
    return _is_union(annotation) or (get_origin(annotation) or annotation) is dict


def _is_record(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
