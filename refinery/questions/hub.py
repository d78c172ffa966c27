"""A dataset of the Hugging Face hub, named in place of a path: `owner/name:split`, with its columns after a question mark.

`questions: ["owner/name:test?config=main&text=question_stem&choices=choices.text&answers=answerKey"]` says which column each field of a
Question is read from; a dot reaches into a column. Fields that are not named are read from the columns of the same name, if there
are any. With `choices`, the column of `answers` must hold letters.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from refinery.errors import RecordError
from refinery.questions.base import parse_row, without_nulls
from refinery.records import Question

_LISTS = ("answers", "choices", "history")


def read(path: Path) -> Iterator[Question]:
    """The rows of one split. Raises RecordError for a name that is not of this form, and naming the row and field."""
    address, _, query = str(path).partition("?")
    name, _, split = address.partition(":")  # a split may hold colons too: train[:10%]
    named = dict(parse_qsl(query))
    config = named.pop("config", None)
    if not name or not split or not named.keys() <= Question.model_fields.keys():
        raise RecordError(f"{path}: is not of the form owner/name:split?field=column. Fields: {', '.join(Question.model_fields)}.")
    rows = _load(path, name, config, split)
    columns = {field: field for field in Question.model_fields if field in rows.column_names} | named
    split_name = re.split(r"\W", split)[0]  # `train` of `train[:10%]` and `train+test`
    for number, row in enumerate(rows):
        where = f"{path}: row {number + 1}"
        values = {field: _value(row, column, where) for field, column in columns.items()}
        fixed = {"id": f"{split}_{number}", "dataset": Path(name).name, "split": split_name}
        yield parse_row(fixed | {field: _fit(field, value) for field, value in without_nulls(values).items()}, Question, where=where)


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


def _fit(field: str, value: Any) -> Any:
    """One answer as a list of one, a number as text."""
    if field in _LISTS:
        return [str(item) for item in (value if isinstance(value, list) else [value])]
    return str(value) if isinstance(value, int | float) else value
