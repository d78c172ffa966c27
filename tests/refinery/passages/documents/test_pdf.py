import logging
from pathlib import Path

import pytest

from refinery.errors import RecordError
from refinery.passages.documents.base import Block, Heading
from refinery.passages.documents.pdf import read_pdf
from refinery.passages.documents.read import read_document

PATH = Path("a.pdf")


def test_each_page_is_a_section(pdf):
    document = read_pdf(pdf("Lyon is a\ncity.", "It is in Fran-\nce.", title="A report"), PATH)
    assert document.title == "A report"
    assert document.elements == [Heading(2, "page 1"), Block("Lyon is a city."), Heading(2, "page 2"), Block("It is in France.")]


@pytest.mark.parametrize("title", ["Untitled", "Microsoft Word - x", "report.doc", ""])
def test_what_programs_write_as_a_title_is_none(pdf, title):
    assert read_pdf(pdf("Text.", title=title), PATH).title is None


def test_a_scan_is_refused_and_a_page_without_text_is_logged(pdf, caplog):
    with pytest.raises(RecordError, match=r"a\.pdf: holds no text on its 2 page\(s\); it may be a scan. Run OCR"):
        read_pdf(pdf("", ""), PATH)
    with caplog.at_level(logging.INFO):
        read_pdf(pdf("Text.", ""), PATH)
    assert "a.pdf: 1 of 2 page(s) hold no text." in caplog.text


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-256"])
def test_a_file_with_a_password_is_refused_and_one_that_opens_without_is_read(pdf, algorithm):
    with pytest.raises(RecordError, match=r"a\.pdf: is encrypted. Save it without its password"):
        read_pdf(pdf("Text.", password="secret", algorithm=algorithm), PATH)
    assert read_pdf(pdf("Text.", algorithm=algorithm), PATH).elements == [Heading(2, "page 1"), Block("Text.")]


@pytest.mark.parametrize("cut", [0, 20, 300])
def test_a_broken_file_is_refused_in_one_line(pdf, cut):
    with pytest.raises(RecordError, match=r"^a\.pdf: .*(is broken|holds no text).*$") as caught:
        read_document(pdf("Text.")[:cut], PATH)
    assert "\n" not in str(caught.value)
