"""EPUB, which is a ZIP of XHTML pages."""

import io
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("bs4", reason="needs the extra `documents`")

from refinery.errors import UnreadableDocumentError
from refinery.passages.documents import epub
from refinery.passages.documents.base import Block, Document, Heading
from refinery.passages.documents.read import parse_document

PATH = Path("a.epub")
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">
<metadata><dc:title>Rivers</dc:title></metadata>
<manifest><item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="one" href="text/one%20.xhtml" media-type="application/xhtml+xml"/>
<item id="two" href="text/two.xhtml" media-type="application/xhtml+xml"/></manifest>
<spine><itemref idref="nav"/><itemref idref="two"/><itemref idref="one"/><itemref idref="two"/></spine></package>"""


def book(**files: str) -> bytes:
    container = '<container><rootfiles><rootfile full-path="OPS/package.opf"/></rootfiles></container>'
    pages = {
        "OPS/nav.xhtml": "<h1>Contents</h1>",
        "OPS/text/one .xhtml": "<html><body><h1>Rhone</h1><p>Long.</p></body></html>",
        "OPS/text/two.xhtml": "<html><head><title>Saone</title></head><body><p>Short.</p></body></html>",
    }
    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in {"META-INF/container.xml": container, "OPS/package.opf": PACKAGE, **pages, **files}.items():
            packed.writestr(name, text)
    return file.getvalue()


def test_chapters_are_read_in_their_order_and_once():
    chapters = [Heading(1, "Saone"), Block("Short."), Heading(1, "Rhone"), Block("Long.")]
    assert parse_document(book(), PATH) == Document("Rivers", chapters)


def test_a_book_that_unpacks_to_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(epub, "_MOST_BYTES", 1 << 20)
    with pytest.raises(UnreadableDocumentError, match=r"a\.epub: unpacks to 2 MB, more than 1"):
        parse_document(book(large="0" * (2 << 20)), PATH)


def test_entities_that_multiply_are_refused():
    entities = "".join(f'<!ENTITY {two} "{f"&{one};" * 20}">' for one, two in zip("abcdefgh", "bcdefghi", strict=True))
    bomb = f'<!DOCTYPE x [<!ENTITY a "ha">{entities}]><container>&i;<rootfile full-path="OPS/package.opf"/></container>'
    with pytest.raises(UnreadableDocumentError, match="amplification"):
        parse_document(book(**{"META-INF/container.xml": bomb}), PATH)
