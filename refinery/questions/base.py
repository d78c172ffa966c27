"""Read questions through a reader found by name, and what the readers of released datasets share."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from refinery import plugins
from refinery.errors import RecordError
from refinery.records import Question, read_text


def read_questions(paths: Sequence[Path], *, reader: str = "jsonl", limit: int | None = None) -> list[Question]:
    """Every question of `paths`; ids must be unique across them. Raises RecordError naming file and line."""
    read = plugins.load("refinery.questions", reader).read
    questions = [question for path in paths for question in read(path)][:limit]
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise RecordError(f"{paths[0]}: question id '{question.id}' is used twice. Ids must be unique.")
        seen.add(question.id)
    return questions


class DatasetRow(BaseModel):
    """Base of a released dataset's row: the fields a reader uses; the release may hold more."""

    model_config = ConfigDict(frozen=True, extra="ignore")


Row = TypeVar("Row", bound=DatasetRow)


def read_dataset(path: Path, row_type: type[Row], to_question: Callable[[Row], Question]) -> list[Question]:
    """Every row of a released file, a JSON list or JSON Lines, as a question; its split is the one the file is named after.

    Raises RecordError naming file, row and field. `to_question` may raise ValueError for a row that contradicts itself.
    """
    split = split_of(path)
    questions: list[Question] = []
    for where, values in _json_rows(path):
        try:
            question = to_question(row_type.model_validate(values))
        except ValidationError as error:
            raise RecordError(f"{where}: {first_fault(error)}") from None
        except ValueError as error:
            raise RecordError(f"{where}: {error}") from None
        questions.append(question.model_copy(update={"split": split}))
    if not questions:
        raise RecordError(f"{path}: has no rows.")
    return questions


def split_of(path: Path) -> str:
    """`dev` for `hotpot_dev_distractor_v1.json`: the split that a file's name holds as a word, else `train`."""
    words = re.split(r"[^a-z]+", path.stem.lower())
    return next((word for word in words if word in ("train", "dev", "validation", "test")), "train")


def first_fault(error: ValidationError) -> str:
    """The first thing that is wrong with a row, in one line."""
    fault = error.errors()[0]
    field = ".".join(str(part) for part in fault["loc"]) or "row"
    return f"field '{field}': {fault['msg']}."


def _json_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """(where, values) of every row: `path:line` in JSON Lines, `path: row n` in a JSON list."""
    text = read_text(path)
    if text.lstrip().startswith("["):
        for number, values in enumerate(_loads(text, lambda error: f"{path}:{error.lineno}"), 1):
            yield f"{path}: row {number}", values
        return
    for number, line in enumerate(text.split("\n"), 1):  # splitlines() would also split at U+2028 inside a text
        if line.strip():
            where = f"{path}:{number}"
            yield where, _loads(line, lambda _, where=where: where)


def _loads(text: str, where: Callable[[json.JSONDecodeError], str]) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise RecordError(f"{where(error)}: not valid JSON at column {error.colno} ({error.msg}).") from None
