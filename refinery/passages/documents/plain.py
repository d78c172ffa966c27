"""Plain text: paragraphs between blank lines."""

from pathlib import Path

from refinery.passages.documents.base import Document, paragraphs
from refinery.passages.lines import decoded


def read_plain(content: bytes, path: Path) -> Document:
    """Raises RecordError for text that is not UTF-8."""
    return Document(None, list(paragraphs(decoded(content, path))))
