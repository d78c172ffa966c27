"""Words in scripts that are written without spaces between them: Chinese, Japanese, Thai, Lao, Khmer and Burmese.

No dictionary is used. For a search or a comparison, overlapping pairs of letters are the words, as in Lucene's CJKAnalyzer. For counting,
a word is two Chinese or Japanese letters, or four letters of the other scripts, which is about the mean length of a word. Marks above,
below or behind a letter belong to it. In a text without such letters, or one that only quotes a few, such as an English article with a
Chinese name in it, the words are those that `str.split` finds.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

_CHINESE_AND_JAPANESE = (
    "\u3005-\u3007\u3041-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U000323af"
)
# Thai, Lao, Burmese and Khmer, without their digits and punctuation.
_SOUTHEAST_ASIAN = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u109a-\u109d\u1780-\u17d3\u17d7\u17dc\u17dd"
    "\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a-\uaa7f"
)
UNSPACED = _CHINESE_AND_JAPANESE + _SOUTHEAST_ASIAN  # as a part of a regular expression's character class
_FROM_THAI_ON = re.compile("[\u0e01-\U0010ffff]")  # takes half the time of looking for each script
_ANY, _RUN = re.compile(f"[{UNSPACED}]"), re.compile(f"[{UNSPACED}]+")
# Letters of one group of scripts, or anything else that has no white space.
_PART = re.compile(f"[{_CHINESE_AND_JAPANESE}]+|[{_SOUTHEAST_ASIAN}]+|[^{UNSPACED}\\s]+")
_IS_SOUTHEAST_ASIAN = re.compile(f"[{_SOUTHEAST_ASIAN}]")
_FULL_STOPS = "\u3002\uff01\uff1f\uff61\u17d4\u17d5\u104b"  # no space follows them; the last three are Khmer and Burmese
_CLOSING = "\u300d\u300f\uff09\u3011\u300b\u3009\u201d\u2019"  # quotation marks and brackets
# In Thai and its neighbors, a space ends a sentence or a phrase.
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_UNSPACED_SENTENCE_END = re.compile(rf"{_SENTENCE_END.pattern}|[{_FULL_STOPS}]+[{_CLOSING}]*\s*|(?<=[{_SOUTHEAST_ASIAN}])\s+")
_QUOTED = 0.2  # the largest fraction of such letters in a text that only quotes them


def has_unspaced(text: str) -> bool:
    """Whether a text has a letter of such a script."""
    return not text.isascii() and _FROM_THAI_ON.search(text) is not None and _ANY.search(text) is not None


def is_unspaced(text: str) -> bool:
    """Whether a text is written in such a script, and does not only quote a few words of one."""
    return has_unspaced(text) and len(_ANY.findall(text)) >= _QUOTED * len(text)


def pairs_apart(text: str) -> str:
    """The text with a space around each pair of adjacent letters, and around a single letter."""
    return _RUN.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text) if has_unspaced(text) else text


def letters_apart(text: str) -> str:
    """The text with a space around each letter, so that a phrase is found like whole words."""
    return _RUN.sub(lambda run: f" {' '.join(_letters(run[0]))} ", text) if has_unspaced(text) else text


def split_words(text: str) -> list[str]:
    """The words of a text, as `count_words` counts them."""
    return [text[start:stop] for start, stop in _spans(text)] if is_unspaced(text) else text.split()


def count_words(text: str) -> int:
    """The number of words in a text."""
    return len(split_words(text))


def cut_words(text: str, most: int) -> Iterator[str]:
    """Consecutive pieces of at most `most` words, with every run of white space as one space."""
    if not is_unspaced(text):
        words = text.split()
        return (" ".join(words[start : start + most]) for start in range(0, len(words), most))
    spans = _spans(text)
    return (_between(text, spans[start : start + most]) for start in range(0, len(spans), most))


def first_words(text: str, count: int) -> str:
    """The first words of a text, with every run of white space as one space."""
    return _between(text, _spans(text)[:count]) if is_unspaced(text) else " ".join(text.split()[:count])


def last_words(text: str, count: int) -> str:
    """The last words of a text, at least one, with every run of white space as one space."""
    return _between(text, _spans(text)[-count:]) if is_unspaced(text) else " ".join(text.split()[-count:])


def sentences(text: str) -> list[str]:
    """The sentences of a text, each with the white space that follows it."""
    end = _UNSPACED_SENTENCE_END if is_unspaced(text) else _SENTENCE_END
    places = [0, *(found.end() for found in end.finditer(text)), len(text)]
    return [text[start:stop] for start, stop in pairwise(places) if start < stop]


def _pairs(run: str) -> Iterable[str]:
    letters = _letters(run)
    return map("".join, pairwise(letters)) if len(letters) > 1 else letters


def _letters(run: str) -> list[str]:
    letters: list[str] = []
    for character in run:
        if letters and unicodedata.category(character).startswith("M"):
            letters[-1] += character
        else:
            letters.append(character)
    return letters


def _spans(text: str) -> list[tuple[int, int]]:
    """(start, stop) of each word. Punctuation without space before it belongs to the word before it."""
    spans: list[tuple[int, int]] = []
    for part in _PART.finditer(text):
        is_punctuation = not any(map(str.isalnum, part[0]))
        if is_punctuation and spans and spans[-1][1] == part.start():
            spans[-1] = spans[-1][0], part.end()
        elif _ANY.match(part[0]):
            spans.extend(_spans_of_letters(part[0], part.start()))
        else:
            spans.append(part.span())
    return spans


def _spans_of_letters(run: str, start: int) -> Iterator[tuple[int, int]]:
    letters = _letters(run)
    per_word = 4 if _IS_SOUTHEAST_ASIAN.match(run) else 2
    for first in range(0, len(letters), per_word):
        stop = start + sum(map(len, letters[first : first + per_word]))
        yield start, stop
        start = stop


def _between(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text from the first of these words to the last one, with every run of white space as one space."""
    return " ".join(text[spans[0][0] : spans[-1][1]].split()) if spans else ""
