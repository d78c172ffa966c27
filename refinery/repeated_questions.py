"""Find out whether a question was asked before, in the same words or nearly so."""

import re
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from sys import intern
from typing import Generic, TypeVar

from refinery.similar_texts import SimilarTexts, words_of
from refinery.text import normalize_answer

T = TypeVar("T")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class _Asked(Generic[T]):
    number: int
    item: T
    names: tuple[str, ...]


class AskedQuestions(Generic[T]):
    """Questions, each with an item from the caller.

    Texts that are equal after normalization are the same question. Texts are nearly the same if the Jaccard similarity of their words is at
    least 0.8, and they have the same names and numbers: "When was A born?" and "When was B born?" are two questions.
    """

    def __init__(self) -> None:
        self._by_text: dict[str, T] = {}
        self._similar: SimilarTexts[_Asked[T]] = SimilarTexts()

    def add(self, text: str, item: T) -> None:
        """Remember a question."""
        normalized = normalize_answer(text)
        asked = _Asked(len(self._by_text), item, _names(text))
        self._by_text[normalized] = item
        self._similar.add(words_of(text), asked)

    def same(self, text: str) -> T | None:
        """The item of the question with the same text, if there is one."""
        return self._by_text.get(normalize_answer(text))

    def nearly_the_same(self, text: str) -> T | None:
        """The item of the first question that is nearly the same."""
        names, words = _names(text), words_of(text)
        similar = [asked for asked in self._similar.similar(words) if asked.names == names]
        first = min(similar, key=lambda asked: asked.number, default=None)
        return first and first.item


def _names(text: str) -> tuple[str, ...]:
    """The names in a question, in alphabetical order: words with a capital letter, except for the first one, and words with a digit.

    Adjacent ones form a single name, because "The Bell Circus" is not "The Circus Bell". If there are no capital letters, as in Natural
    Questions, every word counts as a name.
    """
    words = _WORD.findall(text)
    if not any(word[0].isupper() for word in words):
        return tuple(sorted(map(intern, {*words})))
    in_name = [not word.isalpha() or (number > 0 and word[0].isupper()) for number, word in enumerate(words)]
    runs = groupby(zip(words, in_name, strict=True), key=itemgetter(1))
    names = {normalize_answer(" ".join(word for word, _ in run)) for named, run in runs if named}
    return tuple(sorted(map(intern, names)))
