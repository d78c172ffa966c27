"""How a document is cut: where paragraphs and sentences end, and never longer than asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinery.passages.split import split_text


@given(text=st.text(alphabet="ab. \n!?\u2028", max_size=200), words=st.integers(1, 9))
def test_no_word_is_lost_and_no_passage_is_too_long(text, words):
    passages = list(split_text(text, words))
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
    assert list(split_text(text, 4)) == passages
