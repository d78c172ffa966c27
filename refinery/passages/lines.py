"""Files opened and decoded line by line, so that an error can name the file and the line."""

from pathlib import Path

from refinery.errors import RecordError
from refinery.text import not_utf8, without_mark


def opened(path: Path) -> Path:
    """The path, after a check that the file can be read."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror}). Check the path.") from None
    return path


def decoded(content: bytes, path: Path) -> str:
    """The text of a file's content. Raises RecordError naming the line that is not UTF-8."""
    return "".join(line_text(line, path, number) for number, line in enumerate(content.splitlines(keepends=True), 1))


def line_text(line: bytes, path: Path, number: int) -> str:
    """The text of the `number`-th line of a file. Raises RecordError when it is not UTF-8."""
    try:
        return (without_mark(line) if number == 1 else line).decode()
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}:{number}: {not_utf8(line, error, of=' of the line')}") from None
