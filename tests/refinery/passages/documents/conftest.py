"""Small real documents, written by the libraries that people write them with."""

import io

import pytest


@pytest.fixture
def pdf():
    """Write a PDF with these texts on its pages, one line of each for every line, or with pages of lines at places: (x, y, text).

    With a `gap` in thousandths of the letters' size, words are apart as typesetters set them: by gaps, in a font without a blank.
    """

    def write(*pages, title: str = "", password: str = "", algorithm: str | None = None, gap: int | None = None) -> bytes:
        from pypdf import PdfWriter
        from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

        writer, name = PdfWriter(), NameObject
        font = DictionaryObject({name("/Type"): name("/Font"), name("/Subtype"): name("/Type1"), name("/BaseFont"): name("/Helvetica")})
        font |= {} if gap is None else _widths()
        for text in pages:
            page = writer.add_blank_page(width=600, height=800)
            page[name("/Resources")] = DictionaryObject({name("/Font"): DictionaryObject({name("/F1"): font})})
            content = DecodedStreamObject()
            lines = text if isinstance(text, list) else [(50, 700 - 14 * row, line) for row, line in enumerate(text.split("\n")) if line]
            content.set_data(f"BT /F1 12 Tf {' '.join(_placed(*line, gap) for line in lines)} ET".encode())
            page[name("/Contents")] = writer._add_object(content)
        if title:
            writer.add_metadata({"/Title": title})
        if algorithm:
            writer.encrypt(password, owner_password="owner", algorithm=algorithm)
        writer.write(file := io.BytesIO())
        return file.getvalue()

    return write


def _placed(x, y, text, gap):
    words = f"({text})" if gap is None else f" {-gap} ".join(f"({word})" for word in text.split())
    return f"1 0 0 1 {x} {y} Tm [{words}] TJ"


def _widths():
    """A plus sign is where other fonts have the blank, whose width says to some readers how wide a gap is between words."""
    from pypdf.generic import ArrayObject, DictionaryObject, NameObject, NumberObject

    encoding = DictionaryObject(
        {NameObject("/Type"): NameObject("/Encoding"), NameObject("/Differences"): ArrayObject([NumberObject(32), NameObject("/plus")])}
    )
    return {
        NameObject("/Encoding"): encoding,
        NameObject("/FirstChar"): NumberObject(32),
        NameObject("/LastChar"): NumberObject(122),
        NameObject("/Widths"): ArrayObject([NumberObject(584), *([NumberObject(500)] * 90)]),
    }
