"""Against vectors measured with SQuAD's evaluate-v1.1.py."""

import re
import string
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinery.metrics.squad import exact_match, token_f1
from refinery.text import normalize_answer


@pytest.mark.parametrize(
    ("prediction", "answer", "em", "f1"),
    [
        ("Lyon", "Lyon", 1, 1),
        ("The Lyon.", "lyon", 1, 1),
        ("Yes, they are", "yes", 0, 0.5),
        ("", "the", 1, 0),
        ("", "", 1, 0),
        ("U.S.", "US", 1, 1),
        ("1,000", "1000", 1, 1),
        ("O\u2019Brien", "O'Brien", 0, 0),
        (unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café"), 0, 0),
        ("Maria Maria Torvel", "Maria Torvel", 0, 0.8),
        ("Torvel Maria", "Maria Torvel", 0, 1),
        ("1984", "1985", 0, 0),
        ("Maria Maria Torvel", "Maria Maria", 0, 0.8),
    ],
)
def test_scores_equal_the_reference(prediction, answer, em, f1):
    assert (exact_match(prediction, [answer]), token_f1(prediction, [answer])) == (em, pytest.approx(f1))


def test_the_best_gold_answer_counts():
    answers = ["Oslo", "the city of Lyon", "Lyon"]
    assert (exact_match("lyon", answers), token_f1("city Lyon", answers)) == (1.0, pytest.approx(0.8))


def test_without_gold_answers_nothing_is_right():
    assert (exact_match("Lyon", []), token_f1("Lyon", [])) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("text", "normalised"),
    [("  The   A-Team!", "ateam"), ("another an analysis", "another analysis"), ("Anthe the", "anthe"), ("a.b", "ab")],
)
def test_normalising_deletes_punctuation_before_articles(text, normalised):
    assert normalize_answer(text) == normalised


@given(st.text(st.sampled_from("aAnthe THE.,-_'\t\n\x00\x1c\x7f\u2013\u00e9\u017f\u212a"), max_size=30))
def test_normalisation_is_the_scripts_whatever_the_text(text):
    lowered = "".join(character for character in text.lower() if character not in string.punctuation)
    assert normalize_answer(text) == " ".join(re.sub(r"\b(a|an|the)\b", " ", lowered).split())
