"""EPUB: its chapters in reading order, each of which is a page of XHTML. Its table of contents is not text."""

import io
import posixpath
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from refinery.errors import RecordError
from refinery.passages.documents.base import Block, Document, Heading
from refinery.passages.documents.html import read_html
from refinery.text import one_line

_CONTAINER = "META-INF/container.xml"
_MOST_BYTES = 256 << 20  # unpacked
_PAGES = ("application/xhtml+xml", "text/html")


def read_epub(content: bytes, path: Path) -> Document:
    """The title is the book's. Raises RecordError for a book that unpacks to too much."""
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        if (size := sum(entry.file_size for entry in book.infolist())) > _MOST_BYTES:
            raise RecordError(f"{path}: unpacks to {size >> 20:,} MB, more than {_MOST_BYTES >> 20}. Divide it, or remove it.")
        title, chapters = _contents(book)
        return Document(title, [element for chapter in chapters for element in _elements(book.read(chapter), path)])


def _contents(book: zipfile.ZipFile) -> tuple[str | None, list[str]]:
    """The title, and the names of the chapters' files."""
    from lxml.etree import XMLParser, fromstring

    safe = XMLParser(resolve_entities=False, no_network=True)
    [place, *_] = fromstring(book.read(_CONTAINER), safe).iter("{*}rootfile")
    package, folder = fromstring(book.read(place.get("full-path", "")), safe), posixpath.dirname(place.get("full-path", ""))
    items = {item.get("id"): item for item in package.iter("{*}item")}
    read = [items[one.get("idref")] for one in package.iter("{*}itemref") if one.get("idref") in items]
    pages = [item for item in read if item.get("media-type") in _PAGES and "nav" not in (item.get("properties") or "").split()]
    names = dict.fromkeys(posixpath.normpath(posixpath.join(folder, unquote(page.get("href", "")))) for page in pages)
    titles = [one_line(title.text or "") for title in package.iter("{*}title")]
    return next(filter(None, titles), None), list(names)


def _elements(page: bytes, path: Path) -> Iterator[Heading | Block]:
    """A chapter's elements, under the title of its page if it has no heading."""
    chapter = read_html(page, path)
    if chapter.title and not any(isinstance(element, Heading) for element in chapter.elements):
        yield Heading(1, chapter.title)
    yield from chapter.elements
