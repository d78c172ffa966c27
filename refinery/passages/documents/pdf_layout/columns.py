"""Pages whose columns a PDF has written row by row, put into the order in which people read them."""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from statistics import median

from refinery.passages.documents.pdf_layout.segments import Segment

_FEWEST_LINES = 4  # of a column
_FEWEST_WORDS = 3  # of most of its lines: a table has fewer in its cells
_WORD = re.compile(r"[^\s\u2e80-\uffff]+|[\u2e80-\uffff]")  # Chinese and Japanese have no spaces between words
_FILLED = 0.75  # the share of the column that most of its lines fill: a list or code beside its comments fill less
_WIDEST_LINE = 0.55  # of a column, as a share of the page's text; a wider one spans columns
_BINS = 500  # into which the width of the page's text is divided
_NARROWEST_GAP = 7  # bins between columns
_CROSSING = 0.1  # the share of lines, such as headings, that may cross the gap


def in_reading_order(segments: Sequence[Segment]) -> list[Segment]:
    """The segments column by column if the file has them row by row, and otherwise in the file's order.

    Columns are ordered by where they begin. A line that spans columns stays between the text before and after it.
    """
    edges = _column_edges(segments)
    ordered: list[Segment] = []
    for spans, together in groupby(segments, key=lambda segment: _column(segment, edges) is None):
        run = list(together)
        ordered += run if spans else _by_column(run, edges)
    return ordered


def _column_edges(segments: Sequence[Segment]) -> list[float]:
    """The left edge of each column but the first: the end of a gap that hardly any narrow line crosses."""
    if len(segments) < 2 * _FEWEST_LINES:
        return []
    left, right = min(segment.left for segment in segments), max(segment.right for segment in segments)
    bin_width = (right - left) / _BINS
    if not 0 < bin_width < float("inf"):
        return []
    narrow = [segment for segment in segments if segment.width < _WIDEST_LINE * (right - left)]
    covered = _covered([(int((one.left - left) / bin_width), int((one.right - left) / bin_width)) for one in narrow])
    return [left + end * bin_width for end in _gap_ends(covered)]


def _covered(spans: Sequence[tuple[int, int]]) -> list[int]:
    """The number of spans that cover each bin."""
    changes = [0] * (_BINS + 2)
    for first, last in spans:
        changes[max(first, 0)] += 1
        changes[min(last, _BINS) + 1] -= 1
    return list(accumulate(changes))[: _BINS + 1]


def _gap_ends(covered: Sequence[int]) -> Iterator[int]:
    most = _CROSSING * max(covered)
    end = 0
    for empty, together in groupby(covered, key=lambda count: count <= most):
        start, end = end, end + len(list(together))
        if empty and end - start >= _NARROWEST_GAP and start > 0 and end < len(covered):
            yield end


def _column(segment: Segment, edges: Sequence[float]) -> int | None:
    """The column that a segment is in, from 0, or None if it spans several."""
    tolerance = segment.height / 4
    if any(segment.left < edge - tolerance and segment.right > edge + tolerance for edge in edges):
        return None
    return sum((segment.left + segment.right) / 2 > edge for edge in edges)


def _by_column(run: Sequence[Segment], edges: Sequence[float]) -> list[Segment]:
    columns: dict[int | None, list[Segment]] = {}
    for segment in run:
        columns.setdefault(_column(segment, edges), []).append(segment)
    changes = sum(_column(one, edges) != _column(other, edges) for one, other in pairwise(run))
    mixed = len(columns) > 1 and changes >= min(map(len, columns.values())) and all(map(_is_prose, columns.values()))
    return [segment for column in columns.values() for segment in column] if mixed else list(run)


def _is_prose(column: Sequence[Segment]) -> bool:
    if len(column) < _FEWEST_LINES or median(len(_WORD.findall(segment.text)) for segment in column) < _FEWEST_WORDS:
        return False
    extent = max(segment.right for segment in column) - min(segment.left for segment in column)
    return median(segment.width for segment in column) >= _FILLED * extent
