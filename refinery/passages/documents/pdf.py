"""PDF with a text layer, including filled-in form fields. Each page is a section, so that a passage names its page."""

import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from refinery.errors import RecordError
from refinery.passages.documents.base import Block, Document, Heading, paragraphs
from refinery.passages.documents.pdf_layout.columns import in_reading_order
from refinery.passages.documents.pdf_layout.running_lines import Page, without_running_lines
from refinery.passages.documents.pdf_layout.segments import Segment, page_segments
from refinery.text import one_line

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

_logger = logging.getLogger(__name__)
_HYPHEN = re.compile(r"(?<=[^\W\d_])-\n(?=[^\W\d_])")  # a word that continues on the next line
_LEADER = re.compile(r"(?:[.·…]\s*){5,}")  # the dots between a heading and its page number
_NOT_A_TITLE = re.compile(r"untitled|microsoft word|.*\.\w{2,5}$", re.IGNORECASE)  # titles that programs insert
_LETTERS = re.compile(r"[A-Za-zÀ-ɏͰ-ӿ]+")  # Latin, Greek and Cyrillic, which have spaces between words
_LONGEST_WORD = 24
_MOST_GLUED = 0.05  # the share of letters in longer words; 0.002 at most in manuals of programming libraries


def read_pdf(content: bytes, path: Path) -> Document:
    """Headers, footers, page numbers and line numbers are not text. Warns of words that run into one another.

    Raises RecordError for a file with a password, and for one without text.
    """
    file = _opened(content, path)
    pages = [_text(segments) for segments in without_running_lines(list(_pages(file)))]
    if empty := sum(not page.strip() for page in pages):
        if empty == len(pages):
            raise RecordError(f"{path}: holds no text, so it is probably a scan. Run OCR over it (ocrmypdf), or remove it.")
        _logger.info("%s: %d of %d page(s) hold no text.", path, empty, len(pages))
    if (glued := _share_glued(pages)) > _MOST_GLUED:
        _logger.warning(
            "%s: its words run into one another, and searches will not find them: %.0f%% of its letters are in words of more than "
            "%d. Save it again from its source, or run OCR over it (ocrmypdf --force-ocr).",
            path,
            100 * glued,
            _LONGEST_WORD,
        )
    return Document(_title(file), list(_elements(pages)))


def _opened(content: bytes, path: Path) -> "PdfDocument":
    from pypdfium2 import PdfDocument, PdfiumError
    from pypdfium2.raw import FPDF_ERR_PASSWORD

    try:
        return PdfDocument(content)
    except PdfiumError as error:
        if error.err_code == FPDF_ERR_PASSWORD:
            raise RecordError(f"{path}: is encrypted. Save it without its password, or remove it.") from None
        raise


def _pages(file: "PdfDocument") -> Iterator[Page]:
    file.init_forms()
    for number in range(len(file)):
        if file.formenv:
            _draw_fields(file[number])
        page = file[number]
        yield Page(page.get_height(), page_segments(page))
        page.close()


def _draw_fields(page: "PdfPage") -> None:
    """Make the content of form fields part of the page, which must be opened again afterwards."""
    from pypdfium2 import PdfiumError

    with suppress(PdfiumError):  # a page that holds broken fields is read without them
        page.flatten()
    page.close()


def _text(segments: list[Segment]) -> str:
    lines = "\n".join(segment.text for segment in in_reading_order(segments))
    return _LEADER.sub(" ", _HYPHEN.sub("", lines))


def _share_glued(pages: list[str]) -> float:
    """The fraction of letters in words that are longer than words of ordinary text."""
    lengths = [len(word) for page in pages for word in _LETTERS.findall(page)]
    return sum(length for length in lengths if length > _LONGEST_WORD) / max(sum(lengths), 1)


def _title(file: "PdfDocument") -> str | None:
    title = one_line(file.get_metadata_value("Title").encode("utf-8", "ignore").decode())
    return None if _NOT_A_TITLE.match(title) else title or None


def _elements(pages: list[str]) -> Iterator[Heading | Block]:
    for number, page in enumerate(pages, 1):
        yield Heading(2, f"page {number}")
        yield from paragraphs(page)
