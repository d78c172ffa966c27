"""Users' files as text or bytes, with a one-line error for a file that cannot be read."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from refinery.errors import RecordError
from refinery.text import not_utf8, without_mark


def opened(path: str | Path) -> BinaryIO:
    """The open file. Raises RecordError when there is none."""
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}). Check the path in the recipe.") from None


def byte_lines(path: str | Path) -> Iterator[bytes]:
    """The lines of a file, with their line ends, read lazily; a `.gz` file is decompressed. Lines end at newlines only.

    Raises RecordError when it cannot be read.
    """
    with opened(path) as file:
        if Path(path).suffix != ".gz":
            yield from file
            return
        try:
            with gzip.open(file) as unpacked:
                yield from cast("BinaryIO", unpacked)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _damaged(path, error) from None


def filled_lines(path: str) -> Iterator[tuple[str, bytes]]:
    """(`path:line`, content) of the lines that are not blank, without white space around them or a byte order mark."""
    for number, line in enumerate(byte_lines(path), 1):
        if content := (without_mark(line) if number == 1 else line).strip():
            yield f"{path}:{number}", content


def read_text(path: Path) -> str:
    """A file's text; a `.gz` file is decompressed. Raises RecordError when it cannot be read."""
    with opened(path) as file:
        content = file.read()
    if path.suffix == ".gz":
        content = _unpacked(content, path)
    try:
        return without_mark(content).decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: {not_utf8(content, error)}") from None


def _unpacked(content: bytes, path: Path) -> bytes:
    try:
        return gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, error) from None


def _damaged(path: str | Path, error: Exception) -> RecordError:
    return RecordError(f"{path}: is damaged, or no gzip file ({error}). Download it again.")
