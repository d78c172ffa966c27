"""A document's text as passages: the one way to cut it, so that an id names the same passage wherever a folder of documents is read."""

import re
from collections.abc import Iterator


def split_text(text: str, words_per_passage: int) -> Iterator[str]:
    """Passages of at most that many words, each on one line.

    They end where paragraphs do; a paragraph longer than a passage is cut between sentences, and only a longer sentence within.
    """
    held: list[str] = []
    num_words = 0
    for part in _parts(text, words_per_passage):
        length = len(part.split())
        if held and num_words + length > words_per_passage:
            yield " ".join(held)
            held, num_words = [], 0
        held.append(part)
        num_words += length
    if held:
        yield " ".join(held)


def _parts(text: str, words_per_passage: int) -> Iterator[str]:
    """Paragraphs, the sentences of one that is too long, and the pieces of a sentence that is."""
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.split())
        for part in re.split(r"(?<=[.!?])\s+", line) if len(line.split()) > words_per_passage else [line]:
            words = part.split()
            yield from (" ".join(words[start : start + words_per_passage]) for start in range(0, len(words), words_per_passage))
