"""Users' files as text or bytes, with one line for a file that cannot be read."""

import gzip
import zlib
from pathlib import Path
from typing import BinaryIO

from refinery.errors import RecordError
from refinery.text import not_utf8, without_mark


def opened(path: str | Path) -> BinaryIO:
    """The open file. Raises RecordError when there is none."""
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}). Check the path in the recipe.") from None


def read_text(path: Path) -> str:
    """A file's text; one that ends in `.gz` is unpacked. Raises RecordError when it cannot be read."""
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
        raise RecordError(f"{path}: is damaged, or no gzip file ({error}). Download it again.") from None
