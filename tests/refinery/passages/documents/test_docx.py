import io
import time
from pathlib import Path

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls

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


def with_xml(*parts: str) -> bytes:
    """A document of these parts of WordprocessingML, whose prefix is `w`."""
    document = docx.Document()
    body = document.element.body
    for part in parts:
        body.insert(len(body) - 1, parse_xml(part.replace(">", f" {nsdecls('w')}>", 1)))
    return saved(document)


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def control(inside: str, properties: str = "") -> str:
    return f"<w:sdt><w:sdtPr>{properties}</w:sdtPr><w:sdtContent>{inside}</w:sdtContent></w:sdt>"


def test_text_in_content_controls_and_fields_is_read():
    row = f"<w:tr><w:tc><w:p>{run('cell')}</w:p></w:tc></w:tr>"
    content = with_xml(
        control(f"<w:p>{run('Who: ')}{control(run('Maria'))}</w:p>"),
        f"<w:p><w:fldSimple w:instr='DATE'>{run('1 May')}</w:fldSimple><w:smartTag>{run(' 1999')}</w:smartTag></w:p>",
        f"<w:tbl><w:tblPr/><w:tblGrid><w:gridCol/></w:tblGrid>{control(row)}</w:tbl>",
    )
    assert read_docx(content, PATH).elements == [Block("Who: Maria"), Block("1 May 1999"), Block("| cell |", "table")]


def test_tracked_changes_are_read_as_accepted():
    deleted = "<w:del w:id='2'><w:r><w:delText>old</w:delText></w:r></w:del>"
    moved = f"<w:moveFrom w:id='3'>{run('moved')}</w:moveFrom>"
    content = with_xml(f"<w:p>{run('It is ')}<w:ins w:id='1'>{run('new')}</w:ins>{deleted}{moved}</w:p>")
    assert read_docx(content, PATH).elements == [Block("It is new")]


def test_prompts_of_controls_and_tables_of_contents_are_no_text():
    contents = "<w:docPartObj><w:docPartGallery w:val='Table of Contents'/></w:docPartObj>"
    content = with_xml(
        control(f"<w:p>{run('Introduction 1')}</w:p>", contents),
        f"<w:p>{run('Name:')}{control(run('Click here to enter text.'), '<w:showingPlcHdr/>')}</w:p>",
    )
    assert read_docx(content, PATH).elements == [Block("Name:")]
