"""A folder of documents to passages, and which passages mention which."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from refinery.errors import RecordError
from refinery.passages.sources import DOCUMENT_SUFFIXES, iter_documents
from refinery.records import Passage


def read_documents(folder: Path, *, words_per_passage: int) -> list[Passage]:
    """Passages of about that many words from every .txt and .md file under `folder`, in order of their names.

    Passages end where paragraphs do; only a paragraph longer than a passage is cut, between sentences. An id is the file's path and the
    passage's number in it. Raises RecordError where there is no text to read.
    """
    passages = [
        Passage(id=f"{file.relative_to(folder).as_posix()}:{number}", title=title, text=text)
        for file, title, document in iter_documents(folder)
        for number, text in enumerate(_split(document, words_per_passage), 1)
    ]
    if not passages:
        raise RecordError(f"{folder}: holds no text in files ending in {' or '.join(DOCUMENT_SUFFIXES)}. Name a folder of documents.")
    return passages


def linked_pairs(passages: Sequence[Passage], *, links_per_passage: int) -> Iterator[tuple[Passage, Passage]]:
    """Each passage with those whose titles its text mentions as written, first mentioned first.

    A title is looked for without a note in brackets at its end; where several passages share one, the first stands for them.
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


def _split(text: str, words_per_passage: int) -> Iterator[str]:
    parts: list[str] = []
    for part in _parts(text, words_per_passage):
        if parts and _num_words(*parts, part) > words_per_passage:
            yield " ".join(parts)
            parts = []
        parts.append(part)
    if parts:
        yield " ".join(parts)


def _parts(text: str, words_per_passage: int) -> Iterator[str]:
    """Paragraphs on one line each; the sentences of one that is longer than a passage."""
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.split())
        if _num_words(line) > words_per_passage:
            yield from re.split(r"(?<=[.!?])\s+", line)
        elif line:
            yield line


def _num_words(*texts: str) -> int:
    return sum(len(text.split()) for text in texts)


def _title_words(passage: Passage) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", re.sub(r"\s*\([^()]*\)\s*$", "", passage.title)))
