"""Find balanced objects and lists in a text in linear time, whatever the text: a hostile reply is as cheap to search as a plain one."""

import re
from collections.abc import Iterator

Span = tuple[int, int]  # the start and the end of a part of a text

# Of a longer text only the end is searched, where an answer is.
_MOST_CHARACTERS = 200_000
# A search restarts at each of this many last opening brackets, because a quote in prose may have hidden them from the first search.
_RESTARTS = 8


def balanced_parts(text: str, brackets: str) -> Iterator[Span]:
    """The outermost balanced parts between `brackets`, such as `{}`, from the last backwards. Then those that a quote in prose hides."""
    start = max(len(text) - _MOST_CHARACTERS, 0)
    found = _outermost(text, text.find(brackets[0], start), brackets)
    yield from reversed(found)
    place, known = len(text), set(found)
    for _ in range(_RESTARTS):
        place = text.rfind(brackets[0], start, place)
        if place < 0:
            return
        if (part := _outermost(text, place, brackets)[:1]) and part[0] not in known and not any(_inside(part[0], one) for one in found):
            yield part[0]


def _inside(inner: Span, outer: Span) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _outermost(text: str, place: int, brackets: str) -> list[Span]:
    """The outermost balanced parts from a place on. A bracket in a text between quotes counts only outside of all brackets."""
    if place < 0:
        return []
    opening, tokens = brackets[0], _TOKENS[brackets]
    opened, closed = list[int](), list[Span]()
    while place >= 0:
        token = tokens.search(text, place)
        if token is None:
            break
        place = token.end()
        if token[0] == opening:
            opened.append(token.start())
        elif token[0] == brackets[1] and opened:
            start = opened.pop()
            while closed and closed[-1][0] > start:
                closed.pop()
            closed.append((start, place))
            if not opened:
                place = text.find(opening, place)  # what is quoted in prose between parts does not matter
    return closed


# A text between quotes, up to the end if it is not closed, or a bracket. The possessive quantifier never goes back.
_TOKENS = {brackets: re.compile(rf'"(?:[^"\\]|\\.)*+(?:"|\Z)|[{re.escape(brackets)}]', re.DOTALL) for brackets in ("{}", "[]")}
