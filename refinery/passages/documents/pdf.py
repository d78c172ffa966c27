"""PDF with a text layer. Each page is a section, so that a passage names the page that it is on."""

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from refinery.errors import RecordError
from refinery.passages.documents.base import Block, Document, Heading, paragraphs
from refinery.text import one_line

if TYPE_CHECKING:
    from pypdf import PdfReader

_logger = logging.getLogger(__name__)
_HYPHEN = re.compile(r"(?<=[^\W\d_])-\n(?=[^\W\d_])")  # a word that continues on the next line
_NOT_A_TITLE = re.compile(r"untitled|microsoft word|.*\.\w{2,5}$", re.IGNORECASE)  # what programs write there


def read_pdf(content: bytes, path: Path) -> Document:
    """Raises RecordError for a file with a password, and for one without text."""
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it warns of every small fault that it repairs
    reader = PdfReader(io.BytesIO(content))
    if reader.is_encrypted and not reader.decrypt(""):
        raise RecordError(f"{path}: is encrypted. Save it without its password, or remove it.")
    pages = [page.extract_text().encode("utf-8", "ignore").decode() for page in reader.pages]
    if empty := sum(not page.strip() for page in pages):
        if empty == len(pages):
            raise RecordError(f"{path}: holds no text on its {empty} page(s); it may be a scan. Run OCR over it (ocrmypdf), or remove it.")
        _logger.info("%s: %d of %d page(s) hold no text.", path, empty, len(pages))
    return Document(_title(reader), list(_elements(pages)))


def _title(reader: "PdfReader") -> str | None:
    title = one_line(str((reader.metadata and reader.metadata.title) or "").encode("utf-8", "ignore").decode())
    return None if _NOT_A_TITLE.match(title) else title or None


def _elements(pages: list[str]) -> Iterator[Heading | Block]:
    for number, page in enumerate(pages, 1):
        yield Heading(2, f"page {number}")
        yield from paragraphs(_HYPHEN.sub("", page))
