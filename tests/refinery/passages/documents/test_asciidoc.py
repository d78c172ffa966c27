"""AsciiDoc in both of its styles of headings."""

from pathlib import Path

import pytest

from refinery.passages.documents.asciidoc import read_asciidoc
from refinery.passages.documents.base import Block, Heading


def elements(text: str) -> list[Heading | Block]:
    return list(read_asciidoc(text.encode(), Path("a.adoc")).elements)


@pytest.mark.parametrize("text", ["= Lyon\n\n== Rivers\n\nRhone.", "Lyon\n====\n\nRivers\n------\n\nRhone."])
def test_headings_are_marked_or_underlined(text):
    assert elements(text) == [Heading(1, "Lyon"), Heading(2, "Rivers"), Block("Rhone.")]


def test_listings_stay_as_they_are_and_comments_are_left_out():
    text = "[source,python]\n----\ndef f():\n    return '<b>'\n----\n\n////\nsecret\n////\n// also secret\nEnd."
    assert elements(text) == [Block("def f():\n    return '<b>'", "code"), Block("End.")]


def test_lists_terms_links_and_placeholders_are_text():
    text = "* One link:a.html[guide]\n* Two\n\n-p <path>::\n\tThe path, see <<other,the other>>."
    assert elements(text) == [Block(f"- {one}", "item") for one in ("One guide", "Two", "-p <path>: The path, see the other.")]


def test_no_other_file_is_read():
    assert elements("include::/etc/passwd[]\n\n:name: value\n\nText.") == [Block("Text.")]
