"""Word documents (DOCX): paragraphs by their styles, and tables. Headers, footers, footnotes, comments and text boxes are not read."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from refinery.passages.documents.base import Block, Document, Heading, table
from refinery.text import one_line

if TYPE_CHECKING:
    from docx.document import Document as WordDocument
    from docx.table import Table
    from docx.table import _Cell as Cell
    from docx.text.paragraph import Paragraph

_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)


def read_docx(content: bytes, path: Path) -> Document:
    """The title is the text in the style 'Title'."""
    import docx

    document = docx.Document(io.BytesIO(content))
    titles = [one_line(part.text) for part in document.paragraphs if _style(part) == "Title" and part.text.strip()]
    return Document(titles[0] if titles else None, list(_elements(document)))


def _elements(document: "WordDocument") -> Iterator[Heading | Block]:
    from docx.table import Table

    for part in document.iter_inner_content():
        if isinstance(part, Table):
            yield table(_rows(part))
        elif text := one_line(part.text):
            yield _element(text, _style(part))


def _element(text: str, style: str) -> Heading | Block:
    if style == "Title":
        return Heading(1, text)
    if heading := _HEADING.fullmatch(style):
        return Heading(int(heading[1]), text)
    return Block(f"- {text}", "item") if style.startswith("List") else Block(text)


def _style(paragraph: "Paragraph") -> str:
    return (paragraph.style.name if paragraph.style else None) or ""


def _rows(found: "Table") -> Iterator[list[str]]:
    """The text of each cell. A cell that spans columns comes once."""
    for row in found.rows:
        cells = {id(cell._tc): cell for cell in row.cells}
        yield [_cell_text(cell) for cell in cells.values()]


def _cell_text(cell: "Cell") -> str:
    from docx.table import Table

    parts = (
        " ".join(text for row in _rows(part) for text in row) if isinstance(part, Table) else part.text
        for part in cell.iter_inner_content()
    )
    return " ".join(parts)
