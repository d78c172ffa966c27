"""Cut a document's text into passages. Every reader of documents uses this, so an id always names the same passage."""

import re
from collections.abc import Iterator


def split_text(text: str, words_per_passage: int) -> Iterator[str]:
    """Passages of at most `words_per_passage` words, each on one line.

    Passages end at paragraph ends. A paragraph longer than a passage is cut between sentences, and only a sentence longer than a passage
    is cut inside.
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
    """Paragraphs, the sentences of a paragraph that is too long, and the pieces of a sentence that is too long."""
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.split())
        for part in re.split(r"(?<=[.!?])\s+", line) if len(line.split()) > words_per_passage else [line]:
            words = part.split()
            yield from (" ".join(words[start : start + words_per_passage]) for start in range(0, len(words), words_per_passage))
