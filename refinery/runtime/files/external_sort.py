"""Sort more lines than fit in memory: parts of a few megabytes are sorted and put in temporary files, which are then merged."""

import heapq
from collections.abc import Iterable, Iterator
from tempfile import TemporaryFile
from typing import IO

from refinery.runtime.files.fingerprint import text_fingerprint

_CHARACTERS_AT_ONCE = 4 << 20
_MOST_FILES = 64


class SortedLines:
    """Lines without line breaks, added in any order. Iteration gives them in the order of `sorted`, and can be repeated."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._characters = 0
        self._files: list[IO[str]] = []

    def add(self, line: str) -> None:
        """Add a line, given without its end."""
        self._lines.append(line)
        self._characters += len(line)
        if self._characters >= _CHARACTERS_AT_ONCE:
            self._put_aside(sorted(self._lines))
            self._lines, self._characters = [], 0
            if len(self._files) == _MOST_FILES:
                merged, self._files = heapq.merge(*map(_lines_of, self._files)), []
                self._put_aside(merged)

    def _put_aside(self, ordered: Iterable[str]) -> None:
        file = TemporaryFile("w+", encoding="utf-8", errors="surrogatepass", newline="\n")  # noqa: SIM115 - it goes away with this object
        file.writelines(f"{line}\n" for line in ordered)
        self._files.append(file)

    def __iter__(self) -> Iterator[str]:
        return heapq.merge(*map(_lines_of, self._files), sorted(self._lines))


def sorted_fingerprint(lines: Iterable[str]) -> str:
    """The fingerprint of lines without line breaks, in any order: that of `sorted(lines)`."""
    ordered = SortedLines()
    for line in lines:
        ordered.add(line)
    return text_fingerprint(ordered)


def _lines_of(file: IO[str]) -> Iterator[str]:
    file.seek(0)
    return (line[:-1] for line in file)
