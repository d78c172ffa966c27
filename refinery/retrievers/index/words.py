"""The words of texts: lower-cased, at least two characters long, stemmed and without stop words, as `bm25s.tokenize` makes them.

In texts of scripts that have no spaces between words, each pair of letters that follow each other is a word.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import Stemmer

from refinery.errors import RefineryError
from refinery.unspaced import UNSPACED, has_unspaced, is_unspaced, pairs_apart

_WORD = re.compile(r"\w\w+")
_WORD_OR_PAIR = re.compile(rf"[{UNSPACED}]+|\w\w+")
_MOST_KEPT = 1 << 18  # stems that a tokenizer keeps, about 40 MB; nearly all words of a text are among them
_LONGEST_KEPT = 40
# The lists of bm25s (MIT License, Copyright (c) 2024 Xing Han Lu): Lucene's for English, NLTK's and stopwords-iso's for other languages.
_STOP_WORDS = Path(__file__).with_name("stop_words.json")
_LANGUAGES = {
    "da": "danish",
    "de": "german",
    "en": "english",
    "en_plus": "english_plus",
    "es": "spanish",
    "fr": "french",
    "it": "italian",
    "ko": "korean",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ru": "russian",
    "sv": "swedish",
    "tr": "turkish",
    "zh": "chinese",
}


class WordOptions(Protocol):
    """How words are normalized."""

    @property
    def stemmer(self) -> str | None:
        """A Snowball algorithm."""
        ...

    @property
    def stopwords(self) -> str | None:
        """A language."""
        ...

    def fault(self, name: str, message: str) -> RefineryError:
        """The error for a wrong value of key `name`."""
        ...


class Tokenizer:
    """Splits texts into words. Only for one thread at a time.

    Raises RecipeError for a language without stop words or without a stemmer.
    """

    def __init__(self, options: WordOptions) -> None:
        if options.stemmer and options.stemmer not in Stemmer.algorithms():
            raise options.fault("stemmer", f"no stemmer is called '{options.stemmer}'. Available: {', '.join(Stemmer.algorithms())}.")
        stem = Stemmer.Stemmer(options.stemmer, 0).stemWord if options.stemmer else str
        self._stems = _Stems(stem, stop_words(options, options.stopwords))

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        """The words of each text, in order. Equal words are mostly one object."""
        stems = self._stems
        return [[stem for word in _words(text.lower()) if (stem := stems[word]) is not None] for text in texts]

    def of_query(self, text: str) -> list[str]:
        """The words of a query. Letters without spaces between words are pairs, and whole, as texts have them that only quote them."""
        return [stem for word in _words_of_query(text.lower()) if (stem := self._stems[word]) is not None]


def _words(text: str) -> list[str]:
    return _words_and_pairs(text) if is_unspaced(text) else _WORD.findall(text)


def _words_of_query(text: str) -> list[str]:
    if not has_unspaced(text):
        return _WORD.findall(text)
    words = _words_and_pairs(text)
    return [*words, *(word for word in _WORD.findall(text) if word not in words)]


def _words_and_pairs(text: str) -> list[str]:
    return _WORD_OR_PAIR.findall(pairs_apart(text))


class _Stems(dict[str, str | None]):
    """The stem of each word, which is computed once; None for a stop word."""

    def __init__(self, stem: Callable[[str], str], stopwords: Sequence[str]) -> None:
        super().__init__()
        self._stem, self._stopwords = stem, dict.fromkeys(stopwords)
        self.update(self._stopwords)

    def __missing__(self, word: str) -> str:
        stem = self._stem(word)
        if len(self) >= _MOST_KEPT:
            self.clear()
            self.update(self._stopwords)
        if len(word) <= _LONGEST_KEPT:
            self[word] = stem
        return stem


def stop_words(options: WordOptions, language: str | None) -> list[str]:
    """The words that are left out of a language's texts. Raises RecipeError for a language of `options` without any."""
    if language is None:
        return []
    lists: dict[str, list[str]] = json.loads(_STOP_WORDS.read_text(encoding="utf-8"))
    if found := lists.get(_LANGUAGES.get(language, language)):
        return found
    raise options.fault("stopwords", f"no stop words are known for '{language}'. Available: {', '.join(_LANGUAGES)}.")
