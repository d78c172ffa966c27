"""Find the names in a text by their capital letters, without a model of the language."""

import re
from collections.abc import Container, Iterable, Iterator

Name = tuple[str, ...]

_TOKEN = re.compile(r"[^\W_][\w&'\N{RIGHT SINGLE QUOTATION MARK}-]*|[^\w\s]")
_WORD = re.compile(r"\w+")
_POSSESSIVE = re.compile(r"['\N{RIGHT SINGLE QUOTATION MARK}]s\b")
_INSIDE = frozenset("of the de la le del der den di da du van von al el bin ibn y".split())
SENTENCE_STARTS = frozenset(
    "a an the in on at by for from to with as of after before during since until when while where which who whose what how although though "
    "and or but if both also this that these those it its he his she her they their we our i my there here one some many most all no not "
    "however despite according under over through between among because so then".split()
)


def words_of(text: str) -> list[str]:
    """The words of a text, without punctuation and possessive endings."""
    return _WORD.findall(_POSSESSIVE.sub("", text))


def spans_in(text: str, wanted: Container[Name], lengths: Iterable[int]) -> Iterator[Name]:
    """The spans of a text's words that are among the `wanted` ones, of these lengths, in order.

    A span within a longer name is left out: "Southern California" in "University of Southern California", "Aladdin" in "Aladdin Records".
    """
    text = _POSSESSIVE.sub("", text)
    places = [(match.start(), match.end()) for match in _WORD.finditer(text)]
    words = [text[start:end] for start, end in places]
    for start in range(len(words)):
        for length in lengths:
            end = start + length
            if tuple(words[start:end]) in wanted and not (
                _continues(text, words, places, start - 1) or _continues(text, words, places, end - 1, of_next=True)
            ):
                yield tuple(words[start:end])


def _continues(text: str, words: list[str], places: list[tuple[int, int]], place: int, *, of_next: bool = False) -> bool:
    """Whether a name goes on across the gap after the word at `place`: no punctuation is there, and the outer word is capitalized."""
    if not 0 <= place < len(words) - 1 or text[places[place][1] : places[place + 1][0]].strip(" ("):
        return False
    outer = words[place + 1] if of_next else words[place]
    if outer in _INSIDE and not of_next:  # "University of Southern California"
        return place > 0 and words[place - 1][0].isupper()
    return outer[0].isupper() and outer.lower() not in SENTENCE_STARTS


def names_in(text: str) -> Iterator[Name]:
    """The spans of two or more capitalized words, in order: "Bank of England", "J. Smith", and not "The Bank" or "10 Km".

    Within a name, `of` and the like may be in lower case; at its beginning, words that begin sentences are dropped.
    """
    span: list[str] = []
    for part in [*_TOKEN.findall(_POSSESSIVE.sub("", text)), "."]:
        if part[0].isupper() or (span and part in _INSIDE):
            span.append(part)
        elif not (part == "." and span and len(span[-1]) == 1 and span[-1].isupper()):  # the period of an initial
            yield from _name(span)
            span = []


def _name(span: list[str]) -> Iterator[Name]:
    """The span as a name, if it is one."""
    while span and (span[0].lower() in SENTENCE_STARTS):
        span = span[1:]
    while span and span[-1] in _INSIDE:
        span = span[:-1]
    if sum(word[0].isupper() for word in span) > 1:
        yield tuple(words_of(" ".join(span)))
