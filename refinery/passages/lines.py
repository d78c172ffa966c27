"""Files opened and decoded line by line, so that an error can name the file and the line. A `.gz` file is decompressed."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from refinery.errors import RecordError
from refinery.text import not_utf8, without_mark


def opened(path: Path) -> Path:
    """The path, after a check that the file can be read."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}). Check the path.") from None
    return path


PACKED = ".gz"
_SAMPLE_BYTES = 1 << 22


def format_of(path: Path) -> str:
    """The suffix that names the format: `.jsonl` for `wiki.jsonl` and for `wiki.jsonl.gz`."""
    return Path(path.stem).suffix if path.suffix == PACKED else path.suffix


def byte_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file. Raises RecordError when it cannot be read."""
    with _unpacked(path) as file:
        yield from file


def unpacked_bytes(path: Path) -> int:
    """The uncompressed bytes of a file: exact for a plain file, and estimated from the beginning of a compressed one."""
    size = path.stat().st_size
    if path.suffix != PACKED:
        return size
    with path.open("rb") as packed, _unpacked(path, packed) as file:
        read = len(file.read(_SAMPLE_BYTES))
        return read if read < _SAMPLE_BYTES else round(size * read / max(packed.tell(), 1))


@contextmanager
def _unpacked(path: Path, packed: BinaryIO | None = None) -> Iterator[BinaryIO]:
    """The open file, decompressed. `packed` replaces the file's own bytes, if it is given."""
    opened(path)
    try:
        if path.suffix != PACKED:
            with path.open("rb") as file:
                yield file
        else:
            with gzip.open(packed or path) as file:
                yield cast("BinaryIO", file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RecordError(f"{path}: is damaged, or no gzip file ({error}). Download it again.") from None


def line_text(line: bytes, path: Path, number: int) -> str:
    """The text of the `number`-th line of a file. Raises RecordError when it is not UTF-8."""
    try:
        return (without_mark(line) if number == 1 else line).decode()
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}:{number}: {not_utf8(line, error, of=' of the line')}") from None
