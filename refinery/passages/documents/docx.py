"""Word documents (DOCX): paragraphs by their styles, and tables. Headers, footers, footnotes, comments and text boxes are not read.

Tracked changes are read as if they were accepted. Placeholders of empty content controls and tables of contents are not text.
"""

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

# Elements that Word puts around text, rows or cells: content controls, tracked insertions and moves, fields, marks of other programs.
# python-docx leaves out their content.
_WRAPPERS = tuple(f"w:{name}" for name in ("sdt", "ins", "moveTo", "fldSimple", "smartTag", "customXml", "bdo", "dir"))
_NOT_TEXT = "w:sdtPr/w:showingPlcHdr | w:sdtPr/w:docPartObj/w:docPartGallery[@w:val='Table of Contents']"
_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)


def read_docx(content: bytes, path: Path) -> Document:
    """The title is the text in the style 'Title'."""
    import docx

    document = docx.Document(io.BytesIO(content))
    _unwrap(document)
    parts = list(_parts(document))
    titles = [text for text, style in parts if isinstance(text, str) and style == "Title"]
    return Document(titles[0] if titles else None, [_element(text, style) if isinstance(text, str) else text for text, style in parts])


def _unwrap(document: "WordDocument") -> None:
    """Replace wrappers with their content."""
    from docx.oxml.ns import nsmap, qn
    from lxml.etree import XPath

    is_no_text = XPath(_NOT_TEXT, namespaces=nsmap)
    for wrapper in list(document.element.body.iter(*map(qn, _WRAPPERS))):
        inside = wrapper.find(qn("w:sdtContent")) if wrapper.tag == qn("w:sdt") else wrapper
        for child in [] if inside is None or is_no_text(wrapper) else list(inside):
            wrapper.addprevious(child)
        wrapper.getparent().remove(wrapper)


def _parts(document: "WordDocument") -> Iterator[tuple[str | Block, str]]:
    """Each paragraph that has text, with the name of its style, and each table."""
    from docx.enum.style import WD_STYLE_TYPE
    from docx.table import Table

    default = document.styles.default(WD_STYLE_TYPE.PARAGRAPH)
    names = {style.style_id: style.name or "" for style in document.styles}  # once: `paragraph.style` searches all styles
    for part in document.iter_inner_content():
        if isinstance(part, Table):
            yield table(_rows(part)), ""
        elif text := one_line(part.text):
            yield text, names.get(part._p.style or "", (default and default.name) or "")


def _element(text: str, style: str) -> Heading | Block:
    if style == "Title":
        return Heading(1, text)
    if heading := _HEADING.fullmatch(style):
        return Heading(int(heading[1]), text)
    return Block(f"- {text}", "item") if style.startswith("List") else Block(text)


def _rows(found: "Table") -> Iterator[list[str]]:
    """The text of each cell. A cell that spans columns appears once, and one that spans rows appears in each of them.

    `row.cells` would walk up through all rows above for each continued cell.
    """
    from docx.table import _Cell as Cell

    above: dict[int, str] = {}  # by the column in which a cell begins
    for row in found._tbl.tr_lst:
        texts, column = [], row.grid_before
        for cell in row.tc_lst:
            text = above[column] if cell.vMerge == "continue" and column in above else _cell_text(Cell(cell, found))
            above[column] = text
            texts.append(text)
            column += cell.grid_span
        yield texts


def _cell_text(cell: "Cell") -> str:
    from docx.table import Table

    parts = (
        " ".join(text for row in _rows(part) for text in row) if isinstance(part, Table) else part.text
        for part in cell.iter_inner_content()
    )
    return " ".join(parts)
