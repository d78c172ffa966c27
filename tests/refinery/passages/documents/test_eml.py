"""E-mail, as the standard library writes it."""

from email.message import EmailMessage
from pathlib import Path

import pytest

pytest.importorskip("bs4", reason="needs the extra `documents`")

from refinery.errors import UnreadableDocumentError
from refinery.passages.documents.base import Block, Document
from refinery.passages.documents.read import parse_document

PATH = Path("a.eml")


@pytest.fixture
def message() -> EmailMessage:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = "Größe", "Ann <ann@x.org>", "bob@x.org"
    message.set_content("Twelve meters.\n\nAnn", cte="base64")
    return message


def test_the_subject_is_the_title_and_of_two_forms_the_plain_one_is_read(message):
    message.add_alternative("<p>Twelve <b>meters</b>.</p>", subtype="html")
    read = parse_document(message.as_bytes(), PATH)
    assert read == Document("Größe", [Block("From: Ann <ann@x.org>; To: bob@x.org"), Block("Twelve meters."), Block("Ann")])


def test_a_page_is_read_where_there_is_no_plain_text_and_attachments_are_only_named(message):
    message.set_content("<p>Twelve <b>meters</b>.</p>", subtype="html")
    message.add_attachment(b"secret", maintype="application", subtype="pdf", filename="a.pdf")
    headers = "From: Ann <ann@x.org>; To: bob@x.org; Attachments: a.pdf"
    assert parse_document(message.as_bytes(), PATH).elements == [Block(headers), Block("Twelve meters.")]


def test_a_message_that_only_holds_another_is_read_as_that_one(message):
    around = b"Subject: Fwd\nContent-Type: message/rfc822\n\n"
    assert parse_document(around + message.as_bytes(), PATH) == parse_document(message.as_bytes(), PATH)


def test_an_encoding_that_is_declared_wrongly_is_detected():
    text = "Content-Type: text/plain; charset=nonsense\n\nL'été dernier, nous sommes allés à la forêt près de la rivière."
    assert parse_document(text.encode("cp1252"), PATH).elements == [Block(text.partition("\n\n")[2])]


def test_messages_in_messages_without_end_are_unreadable():
    with pytest.raises(UnreadableDocumentError, match=r"a\.eml: is broken"):
        parse_document(b"Content-Type: message/rfc822\n\n" * 2_000, PATH)
