import io
import logging
from pathlib import Path

import pytest

from refinery.errors import RecordError
from refinery.passages.documents.base import Block, Heading
from refinery.passages.documents.pdf import read_pdf
from refinery.passages.documents.read import parse_document

PATH = Path("a.pdf")


def test_each_page_is_a_section(pdf):
    document = read_pdf(pdf("Lyon is a\ncity.", "It is in Fran-\nce.", title="A report"), PATH)
    assert document.title == "A report"
    assert document.elements == [Heading(2, "page 1"), Block("Lyon is a city."), Heading(2, "page 2"), Block("It is in France.")]


@pytest.mark.parametrize("title", ["Untitled", "Microsoft Word - x", "report.doc", ""])
def test_what_programs_write_as_a_title_is_none(pdf, title):
    assert read_pdf(pdf("Text.", title=title), PATH).title is None


def test_a_scan_is_refused_and_a_page_without_text_is_logged(pdf, caplog):
    with pytest.raises(RecordError, match=r"a\.pdf: holds no text, so it is probably a scan. Run OCR"):
        read_pdf(pdf("", ""), PATH)
    with caplog.at_level(logging.INFO):
        read_pdf(pdf("Text.", ""), PATH)
    assert "a.pdf: 1 of 2 page(s) hold no text." in caplog.text


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-256"])
def test_a_file_with_a_password_is_refused_and_one_that_opens_without_is_read(pdf, algorithm):
    with pytest.raises(RecordError, match=r"a\.pdf: is encrypted. Save it without its password"):
        read_pdf(pdf("Text.", password="secret", algorithm=algorithm), PATH)
    assert read_pdf(pdf("Text.", algorithm=algorithm), PATH).elements == [Heading(2, "page 1"), Block("Text.")]


@pytest.mark.parametrize("cut", [0, 20, 300])
def test_a_broken_file_is_refused_in_one_line(pdf, cut):
    with pytest.raises(RecordError, match=r"^a\.pdf: .*(is broken|holds no text).*$") as caught:
        parse_document(pdf("Text.")[:cut], PATH)
    assert "\n" not in str(caught.value)


def text_of(content):
    return " ".join(element.text for element in read_pdf(content, PATH).elements if isinstance(element, Block))


def test_words_that_only_gaps_separate_are_words(pdf):
    assert text_of(pdf("The rules are set by the harbour master\nand kept by all.", gap=222)) == (
        "The rules are set by the harbour master and kept by all."
    )


def test_a_document_whose_words_run_into_one_another_is_named(pdf, caplog):
    content = pdf("The rules are set by the harbour master.\nThey are kept by all.", gap=0)
    assert "Therulesaresetbytheharbourmaster" in text_of(content)
    assert caplog.messages == [
        "a.pdf: its words run into one another, and searches will not find them: 67% of its letters are in words of more than 24. "
        "Save it again from its source, or run OCR over it (ocrmypdf --force-ocr)."
    ]


def test_a_long_word_and_the_names_of_functions_are_not_taken_for_words_that_run_together(pdf, caplog):
    text = "The function refinery_passages_documents_read_and_more of the Donaudampfschifffahrtsgesellschaft. "
    text_of(pdf(text + "It is a short text. " * 60))
    assert caplog.messages == []


@pytest.mark.parametrize("leader", ["." * 40, " ." * 40, ". . . . ."])
def test_the_dots_between_a_heading_and_its_page_are_no_text(pdf, leader):
    assert text_of(pdf(f"Berths {leader} 2\nAn ellipsis... stays.")) == "Berths 2 An ellipsis... stays."


PLACES = ("Berths", "Cranes", "Pilots", "Lights")


def manual(line=lambda number: f"The {PLACES[number]} are new.", *, header=lambda number: "The Manual, Release 2", footer=None):
    """Pages with a header, two lines of text and a footer."""
    lines = [(header, 760), (line, 700), (lambda number: "Told a day before.", 686), (footer or (lambda number: str(number + 5)), 40)]
    return [[(72, y, text(number)) for text, y in lines if text(number)] for number in range(4)]


@pytest.mark.parametrize(
    "footer",
    [
        lambda number: f"{number + 5} Chapter {number}. {PLACES[number]}",
        lambda number: f"Page {number + 1} of 4",
        lambda number: ["5 Left", "Right 6", "7 Left", "Right 8"][number],
        lambda number: ["", "5", "6", "7"][number],
        lambda number: "Confidential",
    ],
)
def test_headers_footers_and_page_numbers_are_no_text(pdf, footer):
    assert text_of(pdf(*manual(footer=footer))) == " ".join(f"The {place} are new. Told a day before." for place in PLACES)


@pytest.mark.parametrize("header", [lambda number: f"Step {number}: {PLACES[number]}", lambda number: f"{number}. {PLACES[number]}"])
def test_a_first_line_that_differs_from_page_to_page_is_text(pdf, header):
    assert all(header(number) in text_of(pdf(*manual(header=header))) for number in range(4))


def test_a_line_that_repeats_on_two_pages_only_or_at_other_places_is_text(pdf):
    assert text_of(pdf(*manual()[:2])).count("Release 2") == 2
    moved = [[(x, y - 10 * number, text) for x, y, text in page] for number, page in enumerate(manual())]
    assert text_of(pdf(*moved)).count("Release 2") == 4


def test_the_numbers_of_lines_are_no_text_and_those_of_rows_are(pdf):
    lines = [part for number in range(12) for part in [(40, 700 - 14 * number, str(number + 1)), (72, 700 - 14 * number, "Some words.")]]
    assert text_of(pdf(lines)) == " ".join(["Some words."] * 12)
    assert "3 Some" in text_of(pdf([*lines[:8], (72, 500, "An end.")]))


LEFT = "The lighthouse was built|in 1874 by Elin Brask, as|her father did before her|in the south. It was auto-|mated a century later."
RIGHT = "The pier is younger than|the town. It was paved in|stone after a storm that|had carried its planks so|far that none was found."
READ = "The lighthouse was built in 1874 by Elin Brask, as her father did before her in the south. It was automated a century later."


def columns(*texts, by_row):
    lefts = range(50, 550, 500 // len(texts))
    parts = [[(left, 600 - 14 * row, line) for row, line in enumerate(text.split("|"))] for left, text in zip(lefts, texts, strict=False)]
    return [line for lines in (zip(*parts, strict=True) if by_row else parts) for line in lines]


@pytest.mark.parametrize("by_row", [True, False])
def test_columns_are_read_one_after_the_other(pdf, by_row):
    title = "Two towns on one coast: what has been built on the islands and in the harbours of the north since 1874"
    page = [(72, 640, title), *columns(LEFT, RIGHT, by_row=by_row), (72, 500, title)]
    assert text_of(pdf(page)) == f"{title} {READ} {RIGHT.replace('|', ' ')} {title}"


def test_three_columns_written_row_by_row_are_read_one_after_the_other(pdf):
    text = "The pier of {} is|not old. It was paved|in 1911 after a storm|had taken its planks."
    texts = [text.format(name) for name in ("Bergen", "Oslo", "Solvik")]
    assert text_of(pdf(columns(*texts, by_row=True))) == " ".join(texts).replace("|", " ")


def test_a_table_is_read_row_by_row(pdf):
    page = columns("Lyon and all of France|Oslo|Bergen, with its port|Rome|Turin", "12 000 men|7|8|94|5", by_row=True)
    assert "Oslo 7 Bergen, with its port 8" in text_of(pdf(page))


@pytest.mark.parametrize("is_drawn", [True, False])
def test_what_is_filled_into_a_form_is_beside_its_label(pdf, is_drawn):
    content = filled_form(pdf([(50, 700, "Name of the director:")]), (200, 695, 400, 715), "Maria Dune", is_drawn=is_drawn)
    assert read_pdf(content, PATH).elements == [Heading(2, "page 1"), Block("Name of the director: Maria Dune")]


def filled_form(content: bytes, place: tuple[int, ...], value: str, *, is_drawn: bool) -> bytes:
    """The PDF with a field on its first page; some programs write a field's value and leave its drawing to the viewer."""
    from pypdf import PdfWriter
    from pypdf.generic import ArrayObject, DecodedStreamObject, DictionaryObject, NameObject, NumberObject, TextStringObject

    writer = PdfWriter(clone_from=io.BytesIO(content))
    page = writer.pages[0]
    field = DictionaryObject({NameObject(f"/{key}"): NameObject(f"/{name}") for key, name in (("Subtype", "Widget"), ("FT", "Tx"))})
    field[NameObject("/Rect")] = ArrayObject(map(NumberObject, place))
    texts = {"T": "name", "V": value, "DA": "/F1 12 Tf"}
    field |= {NameObject(f"/{key}"): TextStringObject(text) for key, text in texts.items()}
    if is_drawn:
        drawing = DecodedStreamObject()
        drawing.set_data(f"/Tx BMC BT /F1 12 Tf 2 5 Td ({value}) Tj ET EMC".encode())
        box = ArrayObject(map(NumberObject, (0, 0, place[2] - place[0], place[3] - place[1])))
        keys = {"Type": NameObject("/XObject"), "Subtype": NameObject("/Form"), "BBox": box, "Resources": page["/Resources"]}
        drawing |= {NameObject(f"/{key}"): part for key, part in keys.items()}
        field[NameObject("/AP")] = DictionaryObject({NameObject("/N"): writer._add_object(drawing)})
    fields = ArrayObject([writer._add_object(field)])
    page[NameObject("/Annots")] = fields
    form = {NameObject("/Fields"): fields, NameObject("/DR"): page["/Resources"]}
    writer.root_object[NameObject("/AcroForm")] = DictionaryObject(form)
    writer.write(file := io.BytesIO())
    return file.getvalue()
