"""Reject a generated question that an earlier one of the run asks already, in the same words or nearly so."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from distill.steps.held_out import TRAIN
from distill.steps.similar_texts import SimilarTexts
from distill.teacher.teacher import RejectedRow
from refinery.contract.records import Question
from refinery.text import normalize_answer

_WORD = re.compile(r"\w+")


class _HasSplit(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def split(self) -> str: ...


@dataclass(frozen=True, slots=True)
class _Kept:
    number: int
    id: str
    split: str
    names: frozenset[str]


class Repeats:
    """The questions kept so far. Give it held-out questions first: then no training question is kept that one of them repeats.

    Texts that are equal after normalization are duplicates. Near duplicates have a Jaccard similarity of their words of at least 0.8, and
    the names and numbers of one are also in the other: "When was A born?" and "When was B born?" are two questions.
    """

    reasons = frozenset({"duplicate", "near_duplicate", "repeats_held_out"})

    def __init__(self) -> None:
        self._by_text: dict[str, _Kept] = {}
        self._similar: SimilarTexts[_Kept] = SimilarTexts()

    def __call__(self, row: _HasSplit, questions: Sequence[Question]) -> None:
        """Remember a row's questions. Raises RejectedRow if an earlier row asks one of them."""
        for question in questions:
            text, names = normalize_answer(question.text), _names(question.text)
            words = frozenset(text.split())
            if earlier := self._by_text.get(text) or self._near(words, names):
                reason = "duplicate" if text in self._by_text else "near_duplicate"
                held_out = earlier.split != TRAIN and row.split == TRAIN
                raise RejectedRow(
                    "repeats_held_out" if held_out else reason, f"{question.text!r} is asked by {earlier.id} ({earlier.split})"
                )
            self._by_text[text] = kept = _Kept(len(self._by_text), row.id, row.split, names)
            self._similar.add(words, kept)

    def _near(self, words: frozenset[str], names: frozenset[str]) -> _Kept | None:
        """The first question that is nearly the same."""
        similar = [kept for kept in self._similar.similar(words) if kept.names <= names or names <= kept.names]
        return min(similar, key=lambda kept: kept.number, default=None)


def _names(text: str) -> frozenset[str]:
    """The words that name something: those with a capital letter, except for the first word, and those with a digit."""
    words = _WORD.findall(text)
    capitals = {word for word in words[1:] if word[0].isupper()}
    return frozenset(word.lower() for word in capitals | {word for word in words if not word.isalpha()})
