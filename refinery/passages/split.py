"""Cut documents into passages. Everyone who reads documents uses this, so that an id always names the same passage."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, takewhile

from refinery.contract.records import Passage
from refinery.passages.documents.base import Block, Document
from refinery.passages.sections import sections
from refinery.passages.settings import SplitSettings
from refinery.text import one_line
from refinery.unspaced import count_words, cut_words, last_words, sentences, split_words

# A table or code of up to this many times `words_per_passage` stays whole. A longer one is cut between its lines.
_MOST_PASSAGES_OF_A_WHOLE = 4


def split_document(document: Document, name: str, settings: SplitSettings) -> Iterator[Passage]:
    """The passages of a document. `name` is its path in its folder, with which their ids begin.

    An id is `guide/setup.md:2`, or `guide/setup.md#install/linux:2` for the second passage of a section. A change in one document or
    section leaves the ids of all others as they were.
    """
    file_title = re.sub(r"[_-]+", " ", name.rpartition("/")[2].rpartition(".")[0])
    for section in sections(document, file_title):
        for number, text in enumerate(split_blocks(section.blocks, settings), 1):
            yield Passage(id=f"{name}{section.anchor}:{number}", title=section.title, text=text)


def split_blocks(blocks: Iterable[Block], settings: SplitSettings) -> Iterator[str]:
    """Passages of at most `words_per_passage` words, which end at paragraph ends.

    A paragraph longer than a passage is cut between sentences, and only a sentence longer than a passage is cut inside. Tables and code
    are not cut unless they are longer than four passages, and then between lines; each piece of a table begins with its first line.
    """
    held: list[_Piece] = []
    for block in blocks:
        for piece in _pieces(block, settings):
            if held and _length(held) + piece.num_words > settings.words_per_passage:
                yield _joined(held)
                held = _repeated(held, settings.overlap_words)
                if _length(held) + piece.num_words > settings.words_per_passage:
                    held = []
            held.append(piece)
    if held:
        yield _joined(held)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Text that is not cut any further. `begins`: its block begins with it. `is_apart`: a space precedes it in its block."""

    text: str
    kind: str
    num_words: int
    begins: bool = True
    is_apart: bool = True


def _pieces(block: Block, settings: SplitSettings) -> Iterator[_Piece]:
    if block.is_whole:
        pieces = (_Piece(text, block.kind, _count_words(text)) for text in _cut_lines(block, settings.words_per_passage))
    else:
        pieces = _prose_pieces(block, settings.words_per_passage - settings.overlap_words)
    return (piece for piece in pieces if piece.num_words)


def _prose_pieces(block: Block, most_words: int) -> Iterator[_Piece]:
    text, at = one_line(block.text), 0
    for piece in _cut_sentences(text, most_words):
        at = text.index(piece, at)
        yield _Piece(piece, block.kind, _count_words(piece), begins=at == 0, is_apart=text[at - 1 : at] in ("", " "))
        at += len(piece)


def _cut_sentences(text: str, most_words: int) -> Iterator[str]:
    """The text, its sentences if it is too long, and the pieces of a sentence that is too long."""
    for part in sentences(text) if count_words(text) > most_words else [text]:
        yield from cut_words(part, most_words)


def _cut_lines(block: Block, most_words: int) -> Iterator[str]:
    """The block, or pieces of at most `most_words` if it is too long to stay whole."""
    if _count_words(block.text) <= _MOST_PASSAGES_OF_A_WHOLE * most_words:
        yield block.text
        return
    lines = block.text.split("\n")
    header = lines[:1] if block.kind == "table" and _count_words(lines[0]) <= most_words // 2 else []
    room = most_words - sum(map(_count_words, header))
    held: list[str] = []
    num_held = 0
    for line in chain.from_iterable(_cut_line(line, room) for line in lines[len(header) :]):
        num_words = _count_words(line)
        if held and num_held + num_words > room:
            yield "\n".join(header + held)
            held, num_held = [], 0
        held.append(line)
        num_held += num_words
    yield "\n".join(header + held)


def _cut_line(line: str, most_words: int) -> Iterable[str]:
    return [line] if _count_words(line) <= most_words else cut_words(line, most_words)


def _count_words(text: str) -> int:
    """The number of words in a text, without the bars between a table's cells."""
    return sum(word != "|" for word in split_words(text))


def _length(pieces: Iterable[_Piece]) -> int:
    return sum(piece.num_words for piece in pieces)


def _joined(pieces: Sequence[_Piece]) -> str:
    """The text of a passage. Paragraphs follow each other on one line; list items, tables and code have lines to themselves."""
    text = pieces[0].text
    for before, piece in pairwise(pieces):
        on_one_line = not piece.begins or before.kind == piece.kind == "paragraph"
        text += (" " * piece.is_apart if on_one_line else "\n") + piece.text
    return text


def _repeated(pieces: Sequence[_Piece], overlap_words: int) -> list[_Piece]:
    """The end of a passage that the next one repeats. Tables and code are not repeated."""
    prose = list(takewhile(lambda piece: piece.kind in ("paragraph", "item"), reversed(pieces)))[::-1]
    if not prose or not overlap_words:
        return []
    text = last_words(_joined(prose), overlap_words)
    return [_Piece(text, "paragraph", count_words(text))]
