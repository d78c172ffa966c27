import pytest
from hypothesis import given
from hypothesis import strategies as st

from infer.steps.sentences import split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["She was born in Lyon.", "He was not!", "Was he?", "1874 is a year."],
        ["Dr. J. R. Torvel, of the U.S. Navy, met Mrs. Brask.", "They spoke."],
        ['He said "Go."', '"Where?" she asked.', "(Nobody knew.)", "It cost 3.5 million, e.g. Norway's."],
        ["It was built by Brask Inc. in Oct. 1874.", "It stands."],
        ["\u201cGo.\u201d", "\u2018Why?\u2019", "End without a stop"],
    ],
)
def test_a_text_is_split_where_a_reader_would(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.parametrize("text", ["", "  ", "..."])
def test_a_text_without_sentences_is_itself_or_nothing(text):
    assert split_sentences(text) == [text.strip()] * bool(text.strip())


@given(st.text(alphabet="aB1 .!?'\")(\n\u201d"))
def test_nothing_but_white_space_is_lost(text):
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
