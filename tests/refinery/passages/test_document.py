import pytest

from refinery.contract.records import Passage
from refinery.passages.document import document_of


@pytest.mark.parametrize(
    ("id", "title", "document"),
    [
        ("guide.md:3", "Guide", "guide.md"),
        ("guide.md#install/linux:2", "Guide", "guide.md"),
        ("c#.md:2", "Guide", "c#.md"),
        ("c#.md#install:2", "Guide", "c#.md"),
        ("notes/a:b.md:12", "", "notes/a:b.md"),
        ("17", "Dune (film)", "Dune (film)"),
        ("wiki:dune", "Dune", "Dune"),
        ("wiki:81921", "Dune", "Dune"),
        (":3", "Dune", "Dune"),
        ("17", "", "17"),
    ],
)
def test_a_passages_document_is_in_its_id_or_is_its_title(id, title, document):
    assert document_of(Passage(id=id, title=title, text="x")) == document
