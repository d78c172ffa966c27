"""PowerPoint, as python-pptx writes it."""

import io
from pathlib import Path

import pytest

pytest.importorskip("pptx", reason="needs the extra `documents`")

import pptx

from refinery.passages.documents.base import Block, Document, Heading
from refinery.passages.documents.pptx import read_pptx


def test_slides_are_sections_with_their_lists_tables_groups_and_notes():
    deck = pptx.Presentation()
    first = deck.slides.add_slide(deck.slide_layouts[1])
    first.shapes.title.text = "Journeys"
    first.placeholders[1].text_frame.text = "Ask first\nThen go"
    first.notes_slide.notes_text_frame.text = "Say why."
    second = deck.slides.add_slide(deck.slide_layouts[6])
    second.shapes.add_table(1, 2, 0, 0, 100, 100).table.cell(0, 0).text = "km"
    second.shapes.add_group_shape().shapes.add_textbox(0, 0, 10, 10).text_frame.text = "Grouped"
    deck.save(file := io.BytesIO())

    assert read_pptx(file.getvalue(), Path("a.pptx")) == Document(
        "Journeys",
        [
            *(Heading(2, "Journeys"), Block("- Ask first", "item"), Block("- Then go", "item"), Block("Say why.")),
            *(Heading(2, "slide 2"), Block("| km |  |", "table"), Block("Grouped")),
        ],
    )
