"""Plain text: paragraphs between blank lines."""

from pathlib import Path

from refinery.passages.documents.base import Document, paragraphs
from refinery.passages.documents.encoding import decoded


def read_plain(content: bytes, path: Path) -> Document:
    """Raises RecordError for content that is not text."""
    return Document(None, list(paragraphs(decoded(content, path))))
