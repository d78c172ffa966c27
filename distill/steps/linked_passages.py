"""Find which passages mention which others."""

import re
from collections.abc import Iterator, Sequence

from refinery.contract.records import Passage
from refinery.passages.sections import BETWEEN


def linked_pairs(passages: Sequence[Passage], *, links_per_passage: int) -> Iterator[tuple[Passage, Passage]]:
    """Each passage with the passages whose titles its text mentions verbatim, in the order of mention.

    A section's passage is mentioned by its document's title. A parenthesized suffix of a title is ignored; if several passages share a
    title, the first one is used.
    """
    by_title: dict[tuple[str, ...], Passage] = {}
    for passage in passages:
        by_title.setdefault(_title_words(passage), passage)
    by_title.pop((), None)
    lengths = {len(words) for words in by_title}
    for passage in passages:
        words = re.findall(r"\w+", passage.text)
        spans = (tuple(words[start : start + length]) for start in range(len(words)) for length in lengths)
        mentioned = dict.fromkeys(span for span in spans if span in by_title and span != _title_words(passage))
        for span in list(mentioned)[:links_per_passage]:
            yield passage, by_title[span]


def _title_words(passage: Passage) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", re.sub(r"\s*\([^()]*\)\s*$", "", passage.title.partition(BETWEEN)[0])))
