"""Look up rows of a file by the ids of their questions, without holding them in memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Generic, Protocol, TypeVar, cast

from pydantic_core import from_json

from refinery.contract.records import Record, iter_records, parse_record
from refinery.runtime.files.jsonl import LineIndex, numbered_lines


class _OfQuestion(Protocol):
    question_id: str


R = TypeVar("R", bound=Record)


class RowsById(Generic[R]):
    """The rows of a file, whose record has a `question_id`.

    While rows are requested in the file's order, it is read forward and nothing is kept. After the first question that is out of order or
    has no row, the positions of all rows are kept on disk.
    """

    def __init__(self, path: Path, record: type[R]) -> None:
        self._path, self._record = path, record
        self._rows = iter_records(path, record)
        self._ahead: R | None = None  # read, but not requested yet
        self._index: LineIndex | None = None
        self._file: BinaryIO | None = None

    def get(self, question_id: str) -> R | None:
        """The last row of the question, or None. Raises RecordError for a row that cannot be read."""
        if self._index is None:
            row = self._ahead or next(self._rows, None)
            if row is not None and _id(row) == question_id:
                self._ahead = None
                return row
            self._ahead, self._index = row, self._indexed()
        return next((row for row in self._found(question_id) if _id(row) == question_id), None)

    def may_have_more(self, asked: int) -> bool:
        """Whether the file has more rows than the `asked` ones that were found."""
        if self._index is not None:
            return len(self._index) > asked
        self._ahead = self._ahead or next(self._rows, None)
        return self._ahead is not None

    def _indexed(self) -> LineIndex:
        index = LineIndex()
        for start, line in numbered_lines(self._path):
            if line.strip():
                index.add(from_json(line)["question_id"], start)
        return index

    def _found(self, question_id: str) -> Iterator[R]:
        assert self._index is not None, "rows are looked up after they were indexed"
        self._file = self._file or self._path.open("rb")
        for _, start in reversed(self._index.find(question_id)):
            self._file.seek(start)
            yield parse_record(self._file.readline(), self._record, where=f"{self._path}, byte {start}")


def _id(row: Record) -> str:
    return cast(_OfQuestion, row).question_id
