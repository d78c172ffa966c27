"""A dataset on the Hugging Face hub, named instead of a path: `owner/name:split`, with its columns after a question mark.

`questions: ["owner/name:test?config=main&text=question_stem&choices=choices.text&answers=answerKey"]` says which column each field of a
Question is read from; use a dot for a nested column. Other fields are read from the columns with the same names, if there are any.
With `choices`, the column of `answers` must hold letters. A list may be written as JSON, as PopQA's gold answers are.

`owner/name:split?reader=hotpotqa` passes the rows to a dataset's own reader instead of naming columns. It is needed for paragraphs,
supporting facts and decompositions, which are in nested columns that cannot be selected by name.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from pydantic_core import from_json

from refinery.contract.records import Question
from refinery.errors import RecordError
from refinery.questions.base import READERS, find_reader, numbered, parse_row, without_nulls
from refinery.runtime import plugins

_LISTS = ("answers", "choices", "history")


def read(path: Path) -> Iterator[Question]:
    """The questions of one split. Raises RecordError for a name that is not of this form, and for a faulty row, naming row and field."""
    address, _, query = str(path).partition("?")
    name, _, split = address.partition(":")  # a split may hold colons too: train[:10%]
    named = dict(parse_qsl(query))
    config, reader = named.pop("config", None), named.pop("reader", None)
    if not name or not split or not named.keys() <= Question.model_fields.keys():
        raise RecordError(f"{path}: is not of the form owner/name:split?field=column. Fields: {', '.join(Question.model_fields)}.")
    rows = _load(path, name, config, split)
    split_name = re.split(r"\W", split)[0]  # `train` of `train[:10%]` and `train+test`
    if reader and named:
        raise RecordError(f"{path}: reader={reader} knows the columns. Take out {', '.join(named)}.")
    if reader:
        for question in _of_rows(path, reader)(path, numbered(path, rows)):
            yield question.model_copy(update={"split": split_name})
        return
    _check_columns(path, rows.column_names)
    columns = {field: field for field in Question.model_fields if field in rows.column_names} | named
    for number, row in enumerate(rows):
        where = f"{path}: row {number + 1}"
        values = {field: _value(row, column, where) for field, column in columns.items()}
        fixed = {"id": f"{split}_{number}", "dataset": Path(name).name, "split": split_name}
        yield parse_row(fixed | {field: _fit(field, value, where) for field, value in without_nulls(values).items()}, Question, where=where)


def _of_rows(path: Path, name: str) -> Callable[[Path, Iterable[tuple[str, Any]]], Iterable[Question]]:
    of_rows = find_reader(name).of_rows
    if of_rows is None:
        raise RecordError(f"{path}: reader={name} reads files only. Name the columns: field=column.")
    return of_rows


def _check_columns(path: Path, columns: Iterable[str]) -> None:
    """Raise RecordError for nested columns that only a reader can use. It suggests the reader that knows most of them."""
    known = {name: plugins.find_installed(READERS, name).hub_columns for name in READERS.names()}
    fitting = {name: held for name, held in known.items() if held and set(held) <= set(columns)}
    if fitting:
        reader = max(fitting, key=lambda name: len(fitting[name]))
        raise RecordError(f"{path}: column '{fitting[reader][0]}' would not be read. Add reader={reader} after the question mark.")


def _load(path: Path, name: str, config: str | None, split: str) -> Any:
    from datasets import load_dataset

    try:
        return load_dataset(name, config, split=split)
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: cannot be loaded from the hub ({str(error).splitlines()[0]}).") from None


def _value(row: Any, column: str, where: str) -> Any:
    for part in column.split("."):
        if not isinstance(row, dict) or part not in row:
            raise RecordError(f"{where}: has no column '{column}'. Name another after the question mark: field=column.")
        row = row[part]
    return row


def _fit(field: str, value: Any, where: str) -> Any:
    """One answer as a list of one, a list in JSON as that list, a number as text."""
    if field not in _LISTS:
        return str(value) if isinstance(value, int | float) else value
    items = _listed(value, f"{where}: field '{field}'") if isinstance(value, str) else value if isinstance(value, list) else [value]
    if nested := [item for item in items if isinstance(item, dict | list)]:
        raise RecordError(f"{where}: field '{field}': {str(nested[0])[:60]} is not text. Name a column inside it with a dot.")
    return [str(item) for item in items]


def _listed(text: str, where: str) -> list[Any]:
    """The list that a text holds as JSON, or else a list of the text. Raises RecordError for a list in another notation."""
    if not (text.startswith("[") and text.endswith("]")):
        return [text]
    try:
        found = from_json(text)
    except ValueError:
        found = None
    if found is None and text.startswith(("['", '["')):
        raise RecordError(f"{where}: {text[:60]!r} looks like a list but is not JSON. Write it as a JSON list.")
    return found if isinstance(found, list) else [text]
