"""E-mail (EML): the subject, who wrote it to whom and when, the body, and the names of attachments, which are not read."""

from email import message_from_bytes, policy
from email.message import MIMEPart
from pathlib import Path

from refinery.passages.documents.base import Block, Document, Heading, paragraphs
from refinery.passages.documents.encoding import decoded
from refinery.passages.documents.html import read_html
from refinery.text import one_line

_HEADERS = ("From", "To", "Date")


def read_eml(content: bytes, path: Path) -> Document:
    """The title is the subject. Of a body in two forms, the plain text is read."""
    message = message_from_bytes(content, policy=policy.default)
    while message.get_content_type() == "message/rfc822":  # nothing but another message
        message = message.get_content()
    attached = filter(None, (one_line(part.get_filename() or "") for part in message.iter_attachments()))
    said = {name: one_line(str(message[name] or "")) for name in _HEADERS} | {"Attachments": ", ".join(attached)}
    headers = "; ".join(f"{name}: {value}" for name, value in said.items() if value)
    body = message.get_body(("plain", "html"))
    read = [] if body is None else _elements(body, path)
    return Document(one_line(str(message["Subject"] or "")) or None, [Block(headers), *read] if headers and read else read)


def _elements(body: MIMEPart, path: Path) -> list[Heading | Block]:
    payload = body.get_payload(decode=True)
    content = payload if isinstance(payload, bytes) else b""
    if body.get_content_subtype() == "html":
        return list(read_html(content, path).elements)
    return list(paragraphs(_text(content, body.get_content_charset(), path)))


def _text(content: bytes, charset: str | None, path: Path) -> str:
    """The text in the encoding that the message declares, if it is right."""
    try:
        return content.decode(charset or "utf-8")
    except (LookupError, UnicodeDecodeError):
        return decoded(content, path)
