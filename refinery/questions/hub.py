"""A dataset on the Hugging Face hub, named instead of a file: `owner/name:split`, `owner/name@revision:split?config=NAME`.

A repository that a reader knows (`hotpotqa/hotpot_qa`) is read by it. For any other copy of such a dataset,
`owner/name:split?reader=hotpotqa` says so.

For any other dataset, `owner/name:test?config=main&text=question_stem&choices=choices.text&answers=answerKey` says which column each field
of a Question is read from; use a dot for a nested column. Other fields are read from the columns with the same names, if there are any.
With `choices`, the column of `answers` must hold letters. A list may be written as JSON.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from refinery.contract.records import Question
from refinery.errors import RecordError
from refinery.questions.base import READERS, find_reader, parse_row
from refinery.runtime.files.hub_dataset import HubDataset, parse_address, without_nulls
from refinery.runtime.recipes import plugins
from refinery.runtime.run.bad_rows import bad_row, end_of_rows

_LISTS = ("answers", "choices", "history")


def read(path: Path) -> Iterator[Question]:
    """The questions of one split. Raises RecordError for a name that is not of this form, and for a faulty row, naming row and field."""
    dataset = parse_address(str(path))
    if dataset is None or not dataset.options.keys() - {"reader"} <= Question.model_fields.keys():
        raise RecordError(f"{path}: is not of the form owner/name:split?field=column. Fields: {', '.join(Question.model_fields)}.")
    named = {field: column for field, column in dataset.options.items() if field != "reader"}
    reader = dataset.options.get("reader") or (None if named else _reader_of(dataset.name))
    split_name = re.split(r"\W", dataset.split)[0]  # `train` of `train[:10%]` and `train+test`
    if reader and named:
        raise RecordError(f"{path}: reader={reader} knows the columns. Take out {', '.join(named)}.")
    if reader:
        rows = ((where, without_nulls(values)) for where, values in dataset.rows())
        for question in _of_rows(path, reader)(path, rows):
            yield question.model_copy(update={"split": split_name})
    else:
        yield from _by_columns(dataset, named, split_name)


def _reader_of(repository: str) -> str | None:
    """The reader that knows a repository."""
    return next((name for name, known in _installed().items() if repository.lower() in map(str.lower, known.repositories)), None)


def _installed() -> dict[str, Any]:
    return {name: plugins.find_installed(READERS, name) for name in READERS.names()}


def _of_rows(path: Path, name: str) -> Callable[[Path, Iterable[tuple[str, Any]]], Iterable[Question]]:
    of_rows = find_reader(name).of_rows
    if of_rows is None:
        raise RecordError(f"{path}: reader={name} reads files only. Name the columns: field=column.")
    return of_rows


def _by_columns(dataset: HubDataset, named: dict[str, str], split_name: str) -> Iterator[Question]:
    _check_columns(dataset)
    columns = {field: field for field in Question.model_fields if field in dataset.columns} | named
    for number, (where, row) in enumerate(dataset.rows()):
        fixed = {"id": f"{dataset.split}_{number}", "dataset": Path(dataset.name).name, "split": split_name}
        try:
            yield _question(fixed, row, columns, where)
        except RecordError as error:
            bad_row(error, dataset.address, number + 1)
    end_of_rows(dataset.address, dataset.num_rows)


def _question(fixed: dict[str, str], row: Any, columns: dict[str, str], where: str) -> Question:
    values = without_nulls({field: _value(row, column, where) for field, column in columns.items()})
    return parse_row(fixed | {field: _fit(field, value, where) for field, value in values.items()}, Question, where=where)


def _check_columns(dataset: HubDataset) -> None:
    """Raise RecordError for nested columns that only a reader can use. It suggests the reader that knows most of them."""
    fitting = {name: held for name, reader in _installed().items() if (held := reader.hub_columns) and set(held) <= set(dataset.columns)}
    if fitting:
        reader = max(fitting, key=lambda name: len(fitting[name]))
        raise RecordError(
            f"{dataset.address}: column '{fitting[reader][0]}' would not be read. Add reader={reader} after the question mark."
        )


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
