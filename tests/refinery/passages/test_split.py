"""How a document is cut: where paragraphs and sentences end, tables and code whole, and ids that stay."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinery.errors import RecordError
from refinery.passages.documents.base import Block, Document, Heading, paragraphs, table
from refinery.passages.settings import SplitSettings, checked_settings
from refinery.passages.split import split_blocks, split_document


def cut(text, words, overlap=0):
    return list(split_blocks(paragraphs(text), SplitSettings(words_per_passage=words, overlap_words=overlap)))


@given(text=st.text(alphabet="ab. \n!?\u2028", max_size=200), words=st.integers(1, 9))
def test_no_word_is_lost_and_no_passage_is_too_long(text, words):
    passages = cut(text, words)
    assert [word for passage in passages for word in passage.split()] == text.split()
    assert all(0 < len(passage.split()) <= words for passage in passages)


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        ("One two.\n\nThree four.", ["One two. Three four."]),
        ("One two three.\n\nFour five.", ["One two three.", "Four five."]),
        ("One\ntwo. Three four five! Six?", ["One two.", "Three four five! Six?"]),
        ("a b c d e f. g", ["a b c d", "e f. g"]),
        (" \n\n ", []),
    ],
)
def test_passages_end_where_paragraphs_do_and_else_where_sentences_do(text, passages):
    assert cut(text, 4) == passages


def test_a_passage_begins_with_the_last_words_of_the_one_before():
    assert cut("a b c d.\n\ne f.\n\ng h.", 6, overlap=2) == ["a b c d. e f.", "e f. g h."]
    assert cut("a b c d e f g h", 4, overlap=1) == ["a b c", "c d e f", "f g h"]


@given(text=st.text(alphabet="ab. \n", max_size=200), words=st.integers(2, 9), overlap=st.integers(0, 4))
def test_without_what_is_repeated_the_words_are_those_of_the_text(text, words, overlap):
    settings = checked_settings(words, min(overlap, words // 2))
    passages = [passage.split() for passage in split_blocks(paragraphs(text), settings)]
    assert all(0 < len(passage) <= words for passage in passages)
    whole = passages[0] if passages else []
    for before, passage in pairwise(passages):
        repeated = min(settings.overlap_words, len(before))
        assert passage[:repeated] == before[len(before) - repeated :]
        whole = whole + passage[repeated:]
    assert whole == text.split()


@pytest.mark.parametrize(("words", "overlap"), [(0, 0), (-5, 0), (100, 51), (100, -1)])
def test_settings_that_cannot_cut_are_refused(words, overlap):
    with pytest.raises(RecordError, match="Give a number|give 0 to 50"):
        checked_settings(words, overlap)


ROWS = table([["city", "river"], ["Lyon", "Rhone"], ["Paris", "Seine"]])


def test_tables_and_code_are_not_cut_even_where_they_are_longer_than_a_passage():
    blocks = [Block("Two words."), ROWS, Block("x = 1\n\n  y = 2", "code"), Block("The end.")]
    passages = list(split_blocks(blocks, SplitSettings(words_per_passage=4)))
    assert passages == ["Two words.", ROWS.text, "x = 1\n\n  y = 2", "The end."]
    assert list(split_blocks(blocks, SplitSettings(words_per_passage=20))) == [f"Two words.\n{ROWS.text}\nx = 1\n\n  y = 2\nThe end."]


def test_a_table_of_more_than_four_passages_is_cut_between_rows_and_its_header_is_repeated():
    rows = table([["city", "river"], *([f"c{number}", f"r{number}"] for number in range(9))])
    passages = list(split_blocks([rows], SplitSettings(words_per_passage=4)))
    assert passages[0] == "| city | river |\n| c0 | r0 |"
    assert [passage.split("\n")[0] for passage in passages] == ["| city | river |"] * 9
    assert [line for passage in passages for line in passage.split("\n")[1:]] == rows.text.split("\n")[1:]


def test_long_code_is_cut_between_lines_and_a_long_line_between_words():
    code = Block("a b\nc d\n" + " ".join(f"w{number}" for number in range(9)) + "\nlast", "code")
    assert list(split_blocks([code], SplitSettings(words_per_passage=3))) == ["a b", "c d", "w0 w1 w2", "w3 w4 w5", "w6 w7 w8", "last"]


def test_code_and_tables_are_not_repeated_by_an_overlap():
    blocks = [Block("one two"), Block("x y", "code"), Block("three four")]
    assert list(split_blocks(blocks, SplitSettings(words_per_passage=4, overlap_words=2))) == ["one two\nx y", "three four"]


def test_list_items_begin_lines():
    blocks = [Block("Cities are:"), Block("- Lyon", "item"), Block("- Paris", "item"), Block("That is all.")]
    assert list(split_blocks(blocks, SplitSettings())) == ["Cities are:\n- Lyon\n- Paris\nThat is all."]


WORDS = st.text(alphabet="abc", min_size=1, max_size=3)
TEXTS = st.lists(WORDS, min_size=1, max_size=12).map(" ".join)
ELEMENTS = st.one_of(
    st.builds(Heading, st.integers(1, 4), TEXTS),
    st.builds(Block, TEXTS, st.sampled_from(["paragraph", "item", "code"])),
    st.builds(table, st.lists(st.lists(WORDS, min_size=2, max_size=2), min_size=1, max_size=5)),
)


@given(elements=st.lists(ELEMENTS, max_size=12), words=st.integers(2, 9))
def test_every_word_of_any_document_is_in_one_passage_and_every_id_is_unique(elements, words):
    passages = list(split_document(Document(None, elements), "a.md", SplitSettings(words_per_passage=words)))
    written = [word for element in elements if isinstance(element, Block) for word in element.text.split()]
    if not any(isinstance(element, Block) and element.kind == "table" for element in elements):  # long tables repeat their header
        assert [word for passage in passages for word in passage.text.split()] == written
    assert set(written) <= {word for passage in passages for word in passage.text.split()} | {"|"}
    assert len({passage.id for passage in passages}) == len(passages)


def titled(*elements, title=None):
    return [(passage.id, passage.title) for passage in split_document(Document(title, elements), "to/a_guide.md", SplitSettings())]


TEXT = Block("Some text.")


def test_a_title_names_the_document_and_the_headings_above():
    elements = [Heading(1, "Guide"), TEXT, Heading(2, "Install it!"), Heading(3, "On Linux"), TEXT, Heading(2, "Use"), TEXT]
    assert titled(*elements) == [
        ("to/a_guide.md:1", "Guide"),
        ("to/a_guide.md#install-it/on-linux:1", "Guide › Install it! › On Linux"),
        ("to/a_guide.md#use:1", "Guide › Use"),
    ]
    assert titled(TEXT, Heading(2, "Before"), TEXT, Heading(1, "Guide"), TEXT) == [
        ("to/a_guide.md:1", "Guide"),
        ("to/a_guide.md#before:1", "Guide › Before"),
        ("to/a_guide.md#guide:1", "Guide"),
    ]


def test_a_document_is_called_what_it_says_or_after_its_only_first_heading_or_its_file():
    assert titled(Heading(1, "Guide"), TEXT, title="Front")[0][1] == "Front › Guide"
    assert titled(Heading(1, "Guide"), TEXT, title="guide")[0][1] == "guide"
    assert titled(Heading(1, "One"), TEXT, Heading(1, "Two"), TEXT)[1][1] == "a guide › Two"
    assert titled(Heading(2, "One"), TEXT)[0][1] == "a guide › One"
    assert titled(TEXT) == [("to/a_guide.md:1", "a guide")]


def test_a_heading_without_text_gives_no_passage_and_a_very_long_one_is_text():
    assert titled(Heading(1, "Guide"), Heading(2, "Empty"), Heading(2, "?"), TEXT, Heading(2, "")) == [
        ("to/a_guide.md#section:1", "Guide › ?")
    ]
    assert titled(Heading(2, "word " * 31)) == [("to/a_guide.md:1", "a guide")]


def test_sections_of_one_name_have_ids_of_their_own():
    elements = [Heading(2, "A"), TEXT, Heading(2, "A 2"), TEXT, Heading(2, "A"), TEXT]
    assert [passage_id for passage_id, _ in titled(*elements)] == ["to/a_guide.md#a:1", "to/a_guide.md#a-2:1", "to/a_guide.md#a-3:1"]


def test_many_sections_of_one_name_and_many_lines_without_words_are_cut_in_linear_time():
    changelog = [element for number in range(20_000) for element in (Heading(2, "Fixed"), Block(f"Line {number}."))]
    code = Block("a b c d\n" * 200 + "\n" * 40_000 + "end", "code")
    begun = time.process_time()
    ids = [passage.id for passage in split_document(Document(None, [*changelog, code]), "a.md", SplitSettings())]
    assert time.process_time() - begun < 10
    assert ids[:20_000] == ["a.md#fixed:1", *(f"a.md#fixed-{number}:1" for number in range(2, 20_001))]
    assert len(ids) == 20_009


def test_a_numbered_heading_does_not_take_the_id_of_an_equal_one():
    headings = ["A", "A-2", "A", "A", "A-2"]
    found = titled(*[element for text in headings for element in (Heading(2, text), Block("Text."))])
    assert [name.partition("#")[2] for name, _ in found] == ["a:1", "a-2:1", "a-3:1", "a-4:1", "a-2-2:1"]


def test_a_title_of_thousands_of_letters_is_none():
    long = "A" * 2_000
    assert titled(Heading(1, long), Block("Text."), title=long) == titled(Block(long), Block("Text."))


CHINESE = "灯塔建于一八七四年。它在一九八二年实现自动化，看守人离开了岛屿！博物馆收藏着地图。"


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        (CHINESE, ["灯塔建于一八七四年。", "它在一九八二年实现自动化，看守人离开了岛屿！", "博物馆收藏着地图。"]),
        ("灯" * 50, ["灯" * 24, "灯" * 24, "灯" * 2]),
        ("ตลาดเปิดทุกวันอาทิตย์ ท่าเรือจัดงานเทศกาลชาวประมงทุกฤดู ตลาดปิด", ["ตลาดเปิดทุกวันอาทิตย์ ท่าเรือจัดงานเทศกาลชาวประมงทุกฤดู", "ตลาดปิด"]),
    ],
)
def test_text_without_spaces_between_words_is_cut_where_its_sentences_end(text, passages):
    assert cut(text, 12) == passages


def test_sentences_without_a_space_between_them_get_none_in_a_passage():
    assert cut(CHINESE, 18) == ["灯塔建于一八七四年。它在一九八二年实现自动化，看守人离开了岛屿！", "博物馆收藏着地图。"]
    assert cut(CHINESE, 14, overlap=2) == [
        "灯塔建于一八七四年。",
        "七四年。它在一九八二年实现自动化，看守人离开了岛屿！",
        "开了岛屿！博物馆收藏着地图。",
    ]


@given(text=st.text(alphabet="a灯塔。ก่า \n", max_size=200), words=st.integers(1, 9))
def test_no_letter_is_lost_in_a_script_without_spaces(text, words):
    assert "".join("".join(cut(text, words)).split()) == "".join(text.split())
