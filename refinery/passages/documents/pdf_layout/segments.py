"""The text of a PDF's page with its places: words that follow each other closely on a line are one segment."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pypdfium2 import PdfPage, PdfTextPage

_HYPHEN = "\x02"  # PDFium's mark of a hyphen at a line's end, without a line break after it
_WORD_OR_BREAK = re.compile(rf"[^\s\0\ufffe\uffff{_HYPHEN}]+{_HYPHEN}?|\n|{_HYPHEN}")
_WIDEST_GAP = 0.8  # between two words of a segment, by the height of the line; the gap between columns is wider


@dataclass(frozen=True, slots=True)
class Segment:
    """Text on one line, and its place on the page in points, from the lower left corner."""

    text: str
    left: float
    right: float
    bottom: float
    top: float

    @property
    def width(self) -> float:
        """From the left edge of its first letter to the right edge of its last one."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """The height of the line, from the font and not from its letters."""
        return self.top - self.bottom

    @property
    def middle(self) -> float:
        """The vertical position of the line's middle."""
        return (self.bottom + self.top) / 2


def page_segments(page: "PdfPage") -> list[Segment]:
    """The segments of a page, in the order of the file. A line that ends within a word ends in `-`."""
    text = page.get_textpage()
    return [_united(words) for words in _close_words(text)]


def _close_words(text: "PdfTextPage") -> Iterator[list[Segment]]:
    held: list[Segment] = []
    for word in _words(text):
        if held and (word is None or _apart(held[-1], word)):
            yield held
            held = []
        if word:
            held.append(word)
    if held:
        yield held


def _words(text: "PdfTextPage") -> Iterator[Segment | None]:
    """Each word as a segment, and None where a line ends."""
    from pypdfium2.raw import FPDFText_GetUnicode

    codes = (FPDFText_GetUnicode(text.raw, index) for index in range(text.count_chars()))
    letters = "".join(chr(code) if code <= 0x10FFFF else "\ufffd" for code in codes)
    for found in _WORD_OR_BREAK.finditer(letters):
        if word := _valid(found[0].replace(_HYPHEN, "-").strip()):
            yield _placed(word, text, found.start(), found.end() - 1)
        if found[0].endswith(("\n", _HYPHEN)):
            yield None


def _valid(letters: str) -> str:
    """The letters, with surrogate pairs joined and lone halves dropped."""
    return letters.encode("utf-16", "surrogatepass").decode("utf-16", "ignore")


def _placed(word: str, text: "PdfTextPage", first: int, last: int) -> Segment:
    begin, end = text.get_charbox(first, loose=True), text.get_charbox(last, loose=True)
    return Segment(word, min(begin[0], end[0]), max(begin[2], end[2]), min(begin[1], begin[3]), max(begin[1], begin[3]))


def _apart(before: Segment, word: Segment) -> bool:
    return max(word.left - before.right, before.left - word.right) > _WIDEST_GAP * max(before.height, word.height)


def _united(words: Sequence[Segment]) -> Segment:
    return Segment(
        " ".join(word.text for word in words),
        left=min(word.left for word in words),
        right=max(word.right for word in words),
        bottom=min(word.bottom for word in words),
        top=max(word.top for word in words),
    )
