import unicodedata

import pytest

from refinery.metrics.open_domain import asqa_str_em, dpr_em, dpr_has_answer, dspy_em, popqa_match, selfrag_match, triviaqa_em
from refinery.metrics.squad import exact_match

ACCENTED = unicodedata.normalize("NFD", "á la carte")


@pytest.mark.parametrize(
    ("prediction", "gold", "score"),
    [("The_Lyon!", "lyon", 1), ("rock-n-roll", "rock n roll", 1), ("rock-n-roll", "rocknroll", 0), ("O\u00b4Brien`s", "o brien s", 1)],
)
def test_triviaqa_puts_spaces_where_squad_deletes(prediction, gold, score):
    assert triviaqa_em(prediction, [gold]) == score


def test_dpr_keeps_a_letter_with_its_accent_where_squad_takes_it_for_an_article():
    accent_alone = ACCENTED.removeprefix("a")
    assert (dpr_em(ACCENTED, [accent_alone]), exact_match(ACCENTED, [accent_alone])) == (0, 1)
    assert dpr_em(ACCENTED, [ACCENTED]) == 1


def test_dspy_takes_both_spellings_of_an_accent_for_one():
    assert dspy_em(unicodedata.normalize("NFC", "Müller"), [unicodedata.normalize("NFD", "müller")]) == 1


@pytest.mark.parametrize(
    ("text", "answer", "score"),
    [
        ("Maria Torvel was born in Lyon.", "lyon", 1),
        ("Maria Torvel was born in Lyons.", "Lyon", 0),  # tokens, not characters
        ("born in New, York", "New York", 0),  # punctuation is a token
        ("born in New\nYork", "new york", 1),
        ("the U.S. Senate", "U.S.", 1),
        ("Müller", unicodedata.normalize("NFD", "müller"), 1),
        ("", "Lyon", 0),
    ],
)
def test_dpr_looks_for_the_answers_tokens_in_a_row(text, answer, score):
    assert dpr_has_answer(text, ["absent", answer]) == score


@pytest.mark.parametrize(
    ("prediction", "score"), [("\n\nLyon", 1), ("\nLyon", 0), ("in lyon", 1), ("in LYON", 0), ("Oslo. Lyon too", 1), ("", 0)]
)
def test_popqa_reads_the_first_line(prediction, score):
    assert popqa_match(prediction, ["Lyon"]) == score


def test_selfrag_finds_a_letter_inside_another_word():
    assert (selfrag_match("Answer: B", ["A"]), selfrag_match("answer: b", ["A", "B"])) == (1, 0)


def test_asqa_counts_the_readings_that_are_answered():
    readings = [["Torvel", "M. Torvel"], ["The Lyon!"], []]
    assert asqa_str_em("m torvel of Oslo", readings[:1]) == 1
    assert asqa_str_em("Torvels, not Oslo", readings[:2]) == 0.5  # inside a word too
    assert asqa_str_em("torvel, lyon", readings) == pytest.approx(2 / 3)
