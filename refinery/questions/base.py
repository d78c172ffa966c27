"""Read questions with a reader found by name, and helpers that the readers of released datasets share.

A reader is one file with a function `read`. It may be outside this project: a recipe names it, as in `reader: my_lab.trivia`.

    def read(path: Path) -> Iterator[Question]:
        return iter_dataset(path, Row, lambda row: [Question(id=row.key, text=row.question, answers=row.answers)])

A reader that can also read the rows of a dataset on the hub declares `READER = Reader(read, of_rows)`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from string import ascii_uppercase
from typing import Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import from_json

from refinery.contract.records import Question, no_rows
from refinery.errors import ArgumentError, RecordError
from refinery.runtime.files.hub_dataset import hub_dataset
from refinery.runtime.files.parquet import parquet_rows
from refinery.runtime.files.text_file import read_text
from refinery.runtime.recipes import plugins
from refinery.runtime.recipes.plugins import PluginKind
from refinery.runtime.run.bad_rows import bad_row, end_of_rows
from refinery.sample import SampleKeys, sampled


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader, which its file declares as `READER`. A function `read` is enough for a reader that reads files only.

    `read(path)` gives a file's questions and raises RecordError naming the file and row. `of_rows(path, rows)` gives the questions of a
    dataset on the hub, whose rows are (where, values) pairs; `path` is its address. `repositories` are the hub's datasets that select this
    reader by default. `hub_columns` lists their nested columns, whose content cannot be selected by a column name.
    """

    read: Callable[[Path], Iterable[Question]]
    of_rows: Callable[[Path, Iterable[tuple[str, Any]]], Iterable[Question]] | None = None
    hub_columns: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()


NO_SAMPLE = SampleKeys()
READERS = PluginKind("reader", "refinery.questions", Reader, "READER", "read", ("path",), Reader)


def find_reader(name: str) -> Reader:
    """The reader with the name that the user wrote. Raises PluginError."""
    return plugins.find(READERS, name)


def read_questions(
    paths: Sequence[Path], *, reader: str = "jsonl", limit: int | None = None, sample: SampleKeys = NO_SAMPLE
) -> list[Question]:
    """Every question of `paths`. Ids must be unique across all files. Raises RecordError naming the file and line."""
    questions = list(iter_questions(paths, reader=reader, limit=limit, sample=sample))
    check_ids(paths, len(questions), repeated_id(questions))
    return questions


def iter_questions(
    paths: Sequence[Path], *, reader: str = "jsonl", limit: int | None = None, sample: SampleKeys = NO_SAMPLE
) -> Iterator[Question]:
    """The questions of `paths`, read lazily where the format allows it. Ids are not checked for repetitions."""
    return islice(chain.from_iterable(sampled(_read(path, reader), sample, path) for path in paths), limit)


def _read(path: Path, reader: str) -> Iterable[Question]:
    """The questions of a file, or of a dataset on the hub. With the default `jsonl`, a known repository is read by its own reader."""
    if reader == "hub" or hub_dataset(path) is None:
        return find_reader(reader).read(path)
    known = "" if reader in ("jsonl", "by_folder") else f"{'&' if '?' in str(path) else '?'}reader={reader}"
    return find_reader("hub").read(Path(f"{path}{known}"))


def given_questions(questions: str | Path | Iterable[str | Question], *, reader: str = "jsonl") -> list[Question]:
    """The questions of a file, or the given questions or texts. Ids must be unique. Raises RecordError."""
    if isinstance(questions, str | Path):
        return read_questions([Path(questions)], reader=reader)
    return as_questions(questions)


def as_questions(questions: Iterable[str | Question]) -> list[Question]:
    """Texts become questions with their positions, from 1, as ids; questions are unchanged.

    Raises RecordError for a blank text, and ArgumentError for anything else than texts and questions.
    """
    if isinstance(questions, str | Mapping | Question) or not isinstance(questions, Iterable):
        raise ArgumentError("questions", questions, "a list of texts or of refinery.Question")
    return [question if isinstance(question, Question) else _question(number, question) for number, question in enumerate(questions, 1)]


def _question(number: int, text: str) -> Question:
    if not isinstance(text, str):
        raise ArgumentError(f"question {number}", text, "a text or a refinery.Question")
    if not text.strip():
        raise RecordError(f"question {number}: is empty. Give it some text.")
    return Question(id=str(number), text=text)


def read_named_questions(named: Sequence[str], *, reader: str = "jsonl") -> list[Question]:
    """The questions of files, or of datasets on the hub, that a command names as `READER=FILE`, or as `FILE` for the schema `reader`."""
    questions: list[Question] = []
    for name in named:
        before, equals, path = name.partition("=")
        own = equals and "/" not in before  # an address such as owner/name:train?config=nq has no reader in front
        questions += read_questions([Path(path if own else name)], reader=before if own else reader)
    return questions


def repeated_id(questions: Iterable[Question]) -> str | None:
    """The first id that is used more than once, or None."""
    counts = Counter(question.id for question in questions)
    return next((question_id for question_id, count in counts.items() if count > 1), None)


def check_ids(paths: Sequence[Path], count: int, repeated: str | None) -> None:
    """Raise RecordError for a set of questions that is empty or uses an id twice."""
    if not count:
        raise no_rows(paths[0], Question)
    if repeated is not None:
        raise RecordError(f"{paths[0]}: question id '{repeated}' is used twice. Ids must be unique.")


class DatasetRow(BaseModel):
    """Base of a released dataset's row: the fields that a reader uses. The release may have more fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")


Row = TypeVar("Row", bound=DatasetRow)
Parsed = TypeVar("Parsed", bound=BaseModel)

# Words in a file's name, and the split that each means.
_SPLITS = {word: word for word in ("train", "dev", "validation", "test")} | {"training": "train", "val": "validation", "testing": "test"}


def reader_of(
    row_type: type[Row], to_question: Callable[[Row], Question], *, split: str = "train", hub_columns: Sequence[str] = (), **known: Any
) -> Reader:
    """The reader of a dataset with one question in each row: of a file in JSON, JSON Lines or Parquet, and of rows on the hub.

    `row_type` accepts the columns of both. `split` is that of a file whose name has none. `known` are the other fields of a Reader.
    """

    def of_rows(path: Path, rows: Iterable[tuple[str, Any]] | None = None) -> Iterator[Question]:
        return iter_dataset(path, row_type, lambda row: [to_question(row)], rows=rows, split=split)

    return Reader(of_rows, of_rows, tuple(hub_columns), **known)


def read_dataset(path: Path, row_type: type[Row], to_question: Callable[[Row], Question], **layout: Any) -> list[Question]:
    """Every row of a released file as a question. `layout` and the errors are the same as for `iter_dataset`."""
    return list(iter_dataset(path, row_type, lambda row: [to_question(row)], **layout))


def iter_dataset(
    path: Path,
    row_type: type[Row],
    to_questions: Callable[[Row], Sequence[Question]],
    *,
    rows: Iterable[tuple[str, Any]] | None = None,
    split: str = "train",
) -> Iterator[Question]:
    """The questions of every row of a released file: a JSON list, JSON Lines, Parquet, or the (where, values) pairs of `rows`.

    A question without a split gets the one that the file is named after, or else `split`; one without an id gets `<split>_<row>`,
    counted from 0 as FlashRAG does. Raises RecordError naming file, row and field; `to_questions` may raise ValueError for a row
    that contradicts itself.
    """
    split, number = split_of(path, otherwise=split), -1
    for number, (where, values) in enumerate(file_rows(path) if rows is None else rows):
        try:
            questions = _questions_of(values, row_type, to_questions, where)
        except RecordError as error:
            bad_row(error, path, number + 1)
            continue
        for question in questions:
            yield question.model_copy(update={"id": question.id or f"{split}_{number}", "split": question.split or split})
    if number < 0:
        raise RecordError(f"{path}: has no rows.")
    end_of_rows(path, number + 1)


def _questions_of(values: Any, row_type: type[Row], to_questions: Callable[[Row], Sequence[Question]], where: str) -> Sequence[Question]:
    row = parse_row(values, row_type, where=where)
    try:
        return to_questions(row)
    except ValidationError as error:
        raise RecordError(f"{where}: {first_fault(error)}") from None
    except ValueError as error:
        raise RecordError(f"{where}: {error}") from None


def parse_row(values: Any, row_type: type[Parsed], *, where: str) -> Parsed:
    """Decoded values as a row. Raises RecordError, whose message starts with `where` and names the field.

    `values` may be the RecordError of a line that cannot be decoded, which is raised.
    """
    if isinstance(values, RecordError):
        raise values
    try:
        return row_type.model_validate(values)
    except ValidationError as error:
        raise RecordError(f"{where}: {first_fault(error)}") from None


def right_letter(labels: Sequence[str], right: str, *, field: str) -> list[str]:
    """The answers of a multiple-choice question: A when the first label is the right one. Raises ValueError when no label is."""
    if right not in labels:
        raise ValueError(f"field '{field}': '{right}' is not one of {', '.join(labels)}.")
    return [ascii_uppercase[labels.index(right)]]


def distinct(texts: Iterable[str]) -> list[str]:
    """The distinct texts, in order."""
    return list(dict.fromkeys(texts))


def as_rows(value: Any) -> Any:
    """Rows as a list, which the hub's copies may hold as a column of lists (`{"title": [...], "text": [...]}`) or as JSON text."""
    if isinstance(value, str):
        value = from_json(value)
    if not isinstance(value, dict) or not all(isinstance(column, list) for column in value.values()):
        return value
    if len({len(column) for column in value.values()}) > 1:
        raise ValueError(f"expected lists of one length, got {str(value)[:80]}")
    return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]


Rows = BeforeValidator(as_rows)  # for a list of nested rows, in either layout


def split_of(path: Path, *, otherwise: str = "train") -> str:
    """The split that a file's name contains as a word, such as `dev` for `hotpot_dev_distractor_v1.json`, or else `otherwise`.

    For a dataset on the hub, only its split is considered: `owner/name:validation`.
    """
    name = path.name.partition("?")[0].partition(":")[2] or path.stem
    words = re.split(r"[^a-z]+", name.lower())
    return next((_SPLITS[word] for word in words if word in _SPLITS), otherwise)


def first_fault(error: ValidationError) -> str:
    """The first fault of a row, in one line."""
    fault = error.errors()[0]
    field = ".".join(str(part) for part in fault["loc"]) or "row"
    return f"field '{field}': {fault['msg']}."


def file_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """(where, values) of every row of a file in Parquet or JSON."""
    return parquet_rows(path) if path.suffix == ".parquet" else json_rows(path)


def json_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """(where, values) of every row: `path:line` in JSON Lines, `path: row n` in a JSON list. A line that is not JSON gives its error."""
    text = read_text(path)
    if text.lstrip().startswith("["):
        yield from numbered(path, load_json(path, text))
        return
    for number, line in enumerate(text.split("\n"), 1):  # splitlines() would also split at U+2028 inside a text
        if line.strip():
            where = f"{path}:{number}"
            try:
                yield where, _loads(line, lambda _, where=where: where)
            except RecordError as error:
                yield where, error


def numbered(path: Path, rows: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """(where, values) of the rows in one JSON value."""
    return ((f"{path}: row {number}", values) for number, values in enumerate(rows, 1))


def load_json(path: Path, text: str | None = None) -> Any:
    """The value of a file that is one JSON value. Raises RecordError naming the faulty line."""
    return _loads(read_text(path) if text is None else text, lambda error: f"{path}:{error.lineno}")


def _loads(text: str, where: Callable[[json.JSONDecodeError], str]) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise RecordError(f"{where(error)}: not valid JSON at column {error.colno} ({error.msg}).") from None
    except RecursionError:
        raise RecordError(f"{where(json.JSONDecodeError('', text, 0))}: nests too deeply to be read. Check what wrote it.") from None
