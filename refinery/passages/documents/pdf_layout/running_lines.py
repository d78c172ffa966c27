"""Headers, footers, page numbers and line numbers of a PDF, which are removed from its text."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from refinery.passages.documents.pdf_layout.segments import Segment

_FEWEST_PAGES = 3
_PAGES_WITH = 0.5  # the share of pages that have a header or footer
_REPEATED = 0.6  # the share of lines at its place that are repeated or count the pages; the others name a chapter
_MOST_LINES = 3  # of a header or footer
_APART = 1.8  # heights of a line, from its middle to that of the next, where a header ends
_SAME_PLACE = 1.0  # points
_NEAR_PAGES = (-2, -1, 1, 2)  # left and right pages may differ
_FEWEST_LINE_NUMBERS = 10  # on a page
_LINES_WITH_NUMBER = 0.8
_NUMBER = re.compile(r"\d{1,6}")


@dataclass(frozen=True, slots=True)
class Page:
    """The height of a page in points, and its text."""

    height: float
    segments: Sequence[Segment]


@dataclass(frozen=True, slots=True)
class _Line:
    """A line in the first or last block of a page. Its place is its distance from the top, or minus its distance from the bottom."""

    page: int
    place: float
    segments: Sequence[Segment]

    @property
    def text(self) -> str:
        return " ".join(segment.text for segment in self.segments)


def without_running_lines(pages: Sequence[Page]) -> list[list[Segment]]:
    """The text of each page, without line numbers and lines that repeat, or count the pages, at the same place on most pages."""
    plain = [Page(page.height, _without(page.segments, _line_numbers(page.segments))) for page in pages]
    lines = [line for number, page in enumerate(plain) for line in _outer_lines(number, page)]
    running = [segment for line in _running(lines, sum(bool(page.segments) for page in plain)) for segment in line.segments]
    return [_without(page.segments, running) for page in plain]


def _without(segments: Sequence[Segment], dropped: Sequence[Segment]) -> list[Segment]:
    gone = set(map(id, dropped))
    return [segment for segment in segments if id(segment) not in gone]


def _line_numbers(segments: Sequence[Segment]) -> list[Segment]:
    """The numbers at the left or right of nearly every line of a page, if they count the lines."""
    rows = _rows(segments)
    for side in (0, -1):
        numbers = [row[side] for row in rows if len(row) > 1 and row[side].text.isdecimal() and len(row[side].text) < 5]
        counted = all(int(below.text) == int(above.text) + 1 for above, below in pairwise(numbers))
        if counted and len(numbers) >= max(_FEWEST_LINE_NUMBERS, _LINES_WITH_NUMBER * len(rows)):
            return numbers
    return []


def _rows(segments: Sequence[Segment]) -> list[list[Segment]]:
    """The lines of a page from the top, each from the left."""
    rows: list[list[Segment]] = []
    for segment in sorted(segments, key=lambda segment: -segment.middle):
        if rows and rows[-1][0].middle - segment.middle < segment.height / 2:
            rows[-1].append(segment)
        else:
            rows.append([segment])
    return [sorted(row, key=lambda segment: segment.left) for row in rows]


def _outer_lines(number: int, page: Page) -> Iterator[_Line]:
    rows = _rows(page.segments)
    for row in _first_block(rows):
        yield _Line(number, page.height - row[0].middle, row)
    for row in _first_block(rows[::-1]):
        yield _Line(number, -row[0].middle, row)


def _first_block(rows: Sequence[Sequence[Segment]]) -> Sequence[Sequence[Segment]]:
    """The lines before the first gap, or only the first line if there is no early gap."""
    length = 1
    while length < len(rows) and abs(rows[length - 1][0].middle - rows[length][0].middle) <= _APART * rows[length][0].height:
        length += 1
    return rows[: length if length <= _MOST_LINES else 1]


def _running(lines: Sequence[_Line], num_pages: int) -> Iterator[_Line]:
    at: dict[int, list[_Line]] = {}
    for line in lines:
        at.setdefault(round(line.place), []).append(line)
    for place in at:
        near = [line for other in (place - 1, place, place + 1) for line in at.get(other, []) if abs(line.place - place) <= _SAME_PLACE]
        if len({line.page for line in near}) >= max(_FEWEST_PAGES, _PAGES_WITH * num_pages) and _is_running(near):
            yield from near


def _is_running(lines: Sequence[_Line]) -> bool:
    """Whether most of the lines at one place are repeated, or count the pages."""
    texts, of_page = Counter(line.text for line in lines), {line.page: line for line in lines}
    near = ([of_page[line.page + step] for step in _NEAR_PAGES if line.page + step in of_page] for line in lines)
    running = sum(
        texts[line.text] > 1 or any(_count_pages(line, other) for other in others) for line, others in zip(lines, near, strict=True)
    )
    return running >= _REPEATED * len(lines)


def _count_pages(line: _Line, other: _Line) -> bool:
    """Whether two lines differ only in the page's number, or begin or end with it: `12 Chapter 3. Tariffs`."""
    step = other.page - line.page
    pairs = zip(_NUMBER.findall(line.text), _NUMBER.findall(other.text), strict=False)
    if _NUMBER.sub("#", line.text) == _NUMBER.sub("#", other.text) and any(int(late) - int(early) == step for early, late in pairs):
        return True
    return any(number + step in _outer_numbers(other.text) for number in _outer_numbers(line.text))


def _outer_numbers(text: str) -> set[int]:
    """The numbers that a line begins and ends with. `3.` counts chapters or steps, so it is left out."""
    words = text.split()
    return {int(word) for end in (words[0], words[-1]) if _NUMBER.fullmatch(word := end.strip("()[]|-\u2013\u2014"))}
