"""PowerPoint (PPTX): each slide's title, text, tables and notes, slide by slide. Pictures and charts are not read."""

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from refinery.passages.documents.base import Block, Document, Heading, table
from refinery.text import one_line


def read_pptx(content: bytes, path: Path) -> Document:
    """Each slide is a section. The title is that of the first slide."""
    from pptx import Presentation

    slides = list(Presentation(io.BytesIO(content)).slides)
    elements = [element for number, slide in enumerate(slides, 1) for element in _elements(slide, number)]
    return Document((_title(slides[0]) if slides else "") or None, elements)


def _title(slide: Any) -> str:
    return one_line(slide.shapes.title.text_frame.text) if slide.shapes.title is not None else ""


def _elements(slide: Any, number: int) -> Iterator[Heading | Block]:
    yield Heading(2, _title(slide) or f"slide {number}")
    own = slide.shapes.title
    yield from _of_shapes(shape for shape in slide.shapes if own is None or shape.shape_id != own.shape_id)
    if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None:
        yield from _of_text(notes)


def _of_shapes(shapes: Iterable[Any]) -> Iterator[Block]:
    """The text of shapes, also of those in groups."""
    for shape in shapes:
        if shape.has_text_frame:
            yield from _of_text(shape.text_frame, is_list=shape.is_placeholder)
        elif getattr(shape, "has_table", False):
            yield table([cell.text for cell in row.cells if not cell.is_spanned] for row in shape.table.rows)
        elif hasattr(shape, "shapes"):
            yield from _of_shapes(shape.shapes)


def _of_text(frame: Any, *, is_list: bool = False) -> Iterator[Block]:
    texts = filter(None, (one_line(paragraph.text) for paragraph in frame.paragraphs))
    yield from (Block(f"- {text}", "item") if is_list else Block(text) for text in texts)
