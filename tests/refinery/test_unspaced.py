from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinery.unspaced import (
    count_words,
    cut_words,
    first_words,
    has_unspaced,
    last_words,
    letters_apart,
    pairs_apart,
    sentences,
    split_words,
)

SPACED = st.text(alphabet="aé,.! \n\u2028\u0439\ud55c", max_size=60)


@given(text=SPACED, count=st.integers(1, 5))
def test_a_text_with_spaces_has_the_words_that_it_always_had(text, count):
    words = text.split()
    assert not has_unspaced(text)
    assert (pairs_apart(text), letters_apart(text)) == (text, text)
    assert (split_words(text), count_words(text)) == (words, len(words))
    assert list(chain.from_iterable(piece.split() for piece in cut_words(text, count))) == words
    assert first_words(text, count) == " ".join(words[:count])
    assert last_words(text, count) == " ".join(words[-count:])


@given(text=st.text(alphabet="a灯塔カ。，「」ก่า \n၊မြန်", max_size=60), most=st.integers(1, 5))
def test_pieces_of_any_text_are_all_of_it_and_not_too_long(text, most):
    pieces = list(cut_words(text, most))
    assert "".join("".join(piece.split()) for piece in pieces) == "".join(text.split())
    assert "".join(sentences(text)) == text
    assert all(0 < count_words(piece) <= most for piece in pieces)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("灯塔建于一八七四年，由埃林设计。", ["灯塔", "建于", "一八", "七四", "年，", "由埃", "林设", "计。"]),
        ("iPhone手机 in 上海", ["iPhone", "手机", "in", "上海"]),
        ("灯台はいつ", ["灯台", "はい", "つ"]),
        ("พิพิธภัณฑ์เก็บ", ["พิพิธภั", "ณฑ์เก็", "บ"]),
        ("한국어 단어", ["한국어", "단어"]),
    ],
)
def test_two_chinese_letters_or_four_thai_ones_count_as_a_word(text, words):
    assert split_words(text) == words


def test_pairs_overlap_and_keep_the_marks_of_a_letter():
    assert pairs_apart("a灯塔建b塔").split() == ["a", "灯塔", "塔建", "b", "塔"]
    assert pairs_apart("เก็บที่").split() == ["เก็", "ก็บ", "บที่"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("他说：「来吧！」他走了。 好", ["他说：「来吧！」", "他走了。 ", "好"]),
        ("One. Two? 3.5", ["One. ", "Two? ", "3.5"]),
        ("ตลาดเปิด ตลาดปิด", ["ตลาดเปิด ", "ตลาดปิด"]),
    ],
)
def test_sentences_end_where_each_script_ends_them(text, found):
    assert sentences(text) == found
