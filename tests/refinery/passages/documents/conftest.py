"""Small real documents, written by the libraries that people write them with."""

import io

import pytest


@pytest.fixture
def pdf():
    """Write a PDF with these texts on its pages, one line of each for every line."""

    def write(*pages: str, title: str = "", password: str = "", algorithm: str | None = None) -> bytes:
        from pypdf import PdfWriter
        from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

        writer, name = PdfWriter(), NameObject
        font = DictionaryObject({name("/Type"): name("/Font"), name("/Subtype"): name("/Type1"), name("/BaseFont"): name("/Helvetica")})
        for text in pages:
            page = writer.add_blank_page(width=600, height=800)
            page[name("/Resources")] = DictionaryObject({name("/Font"): DictionaryObject({name("/F1"): font})})
            content = DecodedStreamObject()
            lines = "".join(f"({line}) Tj 0 -14 Td " for line in text.split("\n") if line)
            content.set_data(f"BT /F1 12 Tf 50 700 Td {lines} ET".encode())
            page[name("/Contents")] = writer._add_object(content)
        if title:
            writer.add_metadata({"/Title": title})
        if algorithm:
            writer.encrypt(password, owner_password="owner", algorithm=algorithm)
        writer.write(file := io.BytesIO())
        return file.getvalue()

    return write
