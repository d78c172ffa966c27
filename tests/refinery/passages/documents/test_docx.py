import io
import time
from pathlib import Path

import docx
import pytest

from refinery.errors import RecordError
from refinery.passages.documents.base import Block, Heading
from refinery.passages.documents.docx import read_docx
from refinery.passages.documents.read import parse_document

PATH = Path("a.docx")


def saved(document) -> bytes:
    document.save(file := io.BytesIO())
    return file.getvalue()


def test_styles_say_what_a_paragraph_is():
    document = docx.Document()
    document.add_heading("The report", 0)
    document.add_paragraph("Some  text.")
    document.add_heading("Results", 2)
    document.add_paragraph("First", style="List Bullet")
    document.add_paragraph("")
    read = read_docx(saved(document), PATH)
    assert read.title == "The report"
    assert read.elements == [Heading(1, "The report"), Block("Some text."), Heading(2, "Results"), Block("- First", "item")]


def test_tables_come_where_they_are_with_merged_cells_once_and_inner_tables():
    document = docx.Document()
    document.add_paragraph("Before.")
    table = document.add_table(2, 2)
    table.cell(0, 0).merge(table.cell(0, 1)).text = "wide"
    table.cell(1, 0).text = "a"
    table.cell(1, 1).add_table(1, 1).cell(0, 0).text = "inner"
    document.add_paragraph("After.")
    read = read_docx(saved(document), PATH)
    assert read.elements == [Block("Before."), Block("| wide |\n| a | inner |", "table"), Block("After.")]
    assert read.title is None


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04broken"])
def test_a_broken_file_is_refused_in_one_line(content):
    with pytest.raises(RecordError, match=r"^a\.docx: is broken, protected or not \.docx \(.*\)\. Save it again, or remove it\.$"):
        parse_document(content, PATH)


def test_a_cell_that_spans_rows_is_in_each_of_them():
    document = docx.Document()
    table = document.add_table(3, 2)
    table.cell(0, 0).merge(table.cell(1, 0)).text = "north"
    for row, text in enumerate("abc"):
        table.cell(row, 1).text = text
    assert read_docx(saved(document), PATH).elements == [Block("| north | a |\n| north | b |\n|  | c |", "table")]


def test_a_long_document_with_a_long_table_is_read_in_linear_time():
    document = docx.Document()
    table = document.add_table(400, 2)
    column = [cell._tc for cell in table.columns[0].cells]
    table.cell(0, 0).text = "north"
    for cell in column:
        cell.vMerge = "continue"
    column[0].vMerge = "restart"
    for _ in range(5_000):
        document._body._element.insert(0, document._body._element._new_p())
        document._body._element[0].add_r().text = "Text."
    content, begun = saved(document), time.process_time()
    assert len(read_docx(content, PATH).elements) == 5_001
    assert time.process_time() - begun < 4
