"""The documents of a folder: which files are documents, and which reader takes them."""

import logging
import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

from refinery.errors import RecordError, UnreadableDocumentError
from refinery.passages.documents.base import Document
from refinery.passages.documents.docx import read_docx
from refinery.passages.documents.html import read_html
from refinery.passages.documents.markdown import read_markdown
from refinery.passages.documents.pdf import read_pdf
from refinery.passages.documents.plain import read_plain
from refinery.text import one_line, printable

_logger = logging.getLogger(__name__)
_READERS: dict[str, Callable[[bytes, Path], Document]] = {
    ".txt": read_plain,
    ".md": read_markdown,
    ".markdown": read_markdown,
    ".html": read_html,
    ".htm": read_html,
    ".pdf": read_pdf,
    ".docx": read_docx,
}
DOCUMENT_SUFFIXES = tuple(_READERS)
_HIDDEN = (".", "~$")  # the second is Word's mark of a file that is open
_MOST_REASON = 120


def document_files(folder: Path) -> list[Path]:
    """The documents under `folder`, sorted by path. Hidden files and folders are left out; files of other formats are counted in the log.

    Raises RecordError when there are none, and for a folder that cannot be read.
    """
    if not folder.is_dir():
        raise RecordError(f"{folder}: is not a folder. Name a folder of documents ({', '.join(DOCUMENT_SUFFIXES)}).")
    files, others = [], Counter[str]()
    for where, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
        for path in (Path(where, name) for name in names if not name.startswith(_HIDDEN)):
            if path.suffix.lower() in _READERS:
                files.append(path)
            else:
                others[path.suffix.lower() or "without a suffix"] += 1
    if others:
        _log_once(f"{folder}: {sum(others.values())} file(s) of other formats are not read: {_listed(others)}.")
    if not files:
        raise RecordError(f"{folder}: holds no documents ({', '.join(DOCUMENT_SUFFIXES)}). Name a folder of documents.")
    return sorted(files, key=lambda path: document_name(path, folder))


def document_name(path: Path, folder: Path) -> str:
    """How ids name a document: its path in the folder. Raises RecordError for a name that no id can contain."""
    name = path.relative_to(folder).as_posix()
    if printable(name) != name:
        raise RecordError(f"{folder}: the name of {name!a} holds characters that cannot be printed. Rename it.")
    return name


def read_document(content: bytes, path: Path) -> Document:
    """Raises UnreadableDocumentError, and RecordError when the library for the format is not installed."""
    suffix = path.suffix.lower()
    try:
        return _READERS[suffix](content, path)
    except RecordError as error:
        raise UnreadableDocumentError(str(error)) from error
    except ImportError as error:
        raise RecordError(f'{path}: reading {suffix} needs {error.name}. Install it: pip install "rag-refinery[documents]"') from error
    except Exception as error:  # the libraries raise anything for a file that is broken
        reason = one_line(f"{type(error).__name__}: {error}")[:_MOST_REASON]
        raise UnreadableDocumentError(f"{path}: is broken, protected or not {suffix} ({reason}). Save it again, or remove it.") from error


def _refuse(error: OSError) -> None:
    raise RecordError(f"{error.filename}: cannot be read ({error.strerror}). Check the folder.") from None


def _listed(others: Counter[str]) -> str:
    return ", ".join(f"{count} {suffix}" for suffix, count in others.most_common())


@cache
def _log_once(message: str) -> None:
    """A folder may be read several times, for an estimate first."""
    _logger.info("%s", message)
