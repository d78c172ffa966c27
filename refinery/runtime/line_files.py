"""Files of lines: written so that the final name never holds a part, and looked up by the ids of their lines in little memory."""

import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Self

from refinery.runtime.fingerprint import id_number

_BLOCK = 1 << 16


class LineWriter:
    """Writes lines under a temporary name. Leaving the block gives the file its name, or removes it after an error."""

    def __init__(self, path: Path) -> None:
        self.path, self.partial, self.count = path, path.with_name(path.name + ".partial"), 0

    def __enter__(self) -> Self:
        self._file = self.partial.open("w", encoding="utf-8")
        return self

    def write(self, line: str) -> None:
        """Write a line, given without its end."""
        self._file.write(line + "\n")
        self.count += 1

    def flush(self) -> None:
        """Let readers of `partial` see what was written."""
        self._file.flush()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._file.close()
        if kind is None:
            self.partial.replace(self.path)
        else:
            self.partial.unlink(missing_ok=True)


def write_lines(path: Path, lines: Iterable[str]) -> int:
    """Write lines, given without their ends. Returns their count."""
    with LineWriter(path) as writer:
        for line in lines:
            writer.write(line)
    return writer.count


class LineIndex:
    """Where in which of some files each id's lines begin. A line takes 18 bytes of memory."""

    def __init__(self) -> None:
        self._ids, self._starts, self._files = array("Q"), array("Q"), array("H")
        self._ordered = True

    def __len__(self) -> int:
        return len(self._ids)

    def num_ids(self) -> int:
        """The number of distinct ids."""
        self._order()
        return sum(1 for _ in groupby(self._ids))

    def add(self, line_id: str, start: int, *, file: int = 0) -> None:
        """Add a line that begins at the byte `start` of the file with a number."""
        self._ids.append(id_number(line_id))
        self._starts.append(start)
        self._files.append(file)
        self._ordered = False

    def __contains__(self, line_id: str) -> bool:
        return bool(self.find(line_id))

    def find(self, line_id: str) -> list[tuple[int, int]]:
        """(file, start) of the id's lines in the order in which they were added. Another id may have the same number, but hardly ever."""
        self._order()
        number, found = id_number(line_id), list[tuple[int, int]]()
        row = bisect_left(self._ids, number)
        while row < len(self._ids) and self._ids[row] == number:
            found.append((self._files[row], self._starts[row]))
            row += 1
        return found

    def _order(self) -> None:
        """Sort by id, if lines were added since."""
        if self._ordered:
            return
        import numpy as np

        order = np.argsort(np.frombuffer(self._ids, dtype=np.uint64), kind="stable")
        for column in (self._ids, self._starts, self._files):
            values = np.frombuffer(column, dtype=column.typecode)
            values[:] = values[order]
        self._ordered = True


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(start, line) of each line of a file, with its end, which the last one may lack."""
    start = 0
    with path.open("rb") as file:  # bytes split at newlines only; text would also split at U+2028
        for line in file:
            yield start, line
            start += len(line)


def drop_torn_line(path: Path) -> None:
    """Remove a last line without an end, which an interruption has left."""
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _BLOCK)
            file.seek(start)
            if (newline := file.read(end - start).rfind(b"\n")) >= 0:
                file.truncate(start + newline + 1)
                return
            end = start
        file.truncate(0)
