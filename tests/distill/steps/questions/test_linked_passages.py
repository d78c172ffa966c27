from pathlib import Path

import pytest

from distill.steps.questions.linked_passages import linked_passages
from refinery.contract.records import Passage
from refinery.passages.sources import iter_passages

FILLER = "It goes on for a while with words that name nothing at all."


def passage(id, title, text):
    return Passage(id=id, title=title, text=f"{text} {FILLER}")


def links(*passages, most=3):
    return [(link.first.id, link.second.id, link.name) for link in linked_passages(passages, links_per_passage=most)]


DUNE = passage("dune", "Dune (1994 film)", "Dune was directed by Maria Torvel.")
TORVEL = passage("torvel", "Maria Torvel", "Maria Torvel was born in Lyon.")


def test_a_passage_is_linked_to_the_one_whose_title_it_mentions():
    assert links(DUNE, TORVEL) == [("dune", "torvel", "Maria Torvel")]
    assert links(TORVEL, DUNE) == [("dune", "torvel", "Maria Torvel")]


def test_passages_are_linked_by_a_rare_name_that_no_title_has():
    other = passage("bank", "Bank of Lyon", "Maria Torvel owned it.")
    assert links(DUNE, other) == [("dune", "bank", "Maria Torvel")]
    many = [passage(f"p{number}", f"Page {number}", "They met Maria Torvel there.") for number in range(3)]
    assert links(DUNE, other, *many) == []


def test_a_name_in_many_passages_links_none_even_if_it_is_a_title():
    many = [passage(f"p{number}", f"Page {number}", "He lived in Lyon then.") for number in range(11)]
    assert links(passage("lyon", "Lyon", "A city."), *many) == []
    assert len(links(passage("lyon", "Lyon", "A city."), *many[:5])) == 5


def test_titles_and_rarer_names_come_first():
    first = passage("first", "First", "Bo Ray met Maria Torvel, Ann Lee and Tom Fox.")
    others = [passage(id, id.title(), f"Then {name} left.") for id, name in (("lee", "Ann Lee"), ("fox", "Tom Fox"), ("wolf", "Tom Fox"))]
    assert [second for _, second, _ in links(first, *others, TORVEL)][:2] == ["torvel", "lee"]
    assert [second for one, second, _ in links(first, *others, TORVEL, most=1) if one == "first"] == ["torvel"]


def test_passages_of_one_document_are_not_linked_unless_there_is_only_one():
    text = "Then Maria Torvel left."
    parts = [passage(f"guide.md:{number}", "Guide", text) for number in (1, 2, 3)]
    assert links(*parts, passage("x.md:1", "X", "Nothing.")) == []
    assert links(*parts) == [("guide.md:1", "guide.md:3", "Maria Torvel")] or links(*parts) == [
        ("guide.md:3", "guide.md:1", "Maria Torvel")
    ]


@pytest.mark.parametrize(
    ("title", "other", "name"),
    [
        ("Dune (1994 film)", "Dune (2021 film)", "Ann Lee"),
        ("Catan", "The Rivals for Catan", "Catan"),
        ("Deh Bagh, Razavi Khorasan", "Kalateh, Razavi Khorasan", "Razavi Khorasan"),
    ],
)
def test_passages_about_one_thing_by_their_titles_are_not_linked(title, other, name):
    assert links(passage("a", title, f"It is {name}."), passage("b", other, f"It was {name}.")) == []
    assert len(links(passage("a", "One", f"It is {name}."), passage("b", "Another", f"It was {name}."))) == (" " in name)


def test_a_word_that_begins_sentences_and_the_end_of_a_document_link_nothing():
    assert links(passage("a", "A", "This is it."), passage("b", "This (song)", "A song.")) == []
    assert links(Passage(id="a", title="A", text="with Maria Torvel."), TORVEL) == []


def test_real_passages_give_thousands_of_links_to_many_passages():
    source = Path(__file__).parents[4] / "shared" / "data" / "wiki_passages.jsonl"
    if not source.exists():
        pytest.skip("needs shared/data/wiki_passages.jsonl")
    passages = list(iter_passages(source))[:3_000]
    found = list(linked_passages(passages, links_per_passage=3))
    assert len(found) > 800
    assert len({link.second.id for link in found}) > len(found) / 2
    assert found == list(linked_passages(passages, links_per_passage=3))
