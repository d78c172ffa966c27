"""The content of a document, whatever its format: headings, paragraphs, list items, tables and code, in reading order."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from refinery.text import one_line


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of the text below it; level 1 is the highest."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the text. Tables (whose first line is their header) and code keep their lines; other text is on one line."""

    text: str
    kind: Literal["paragraph", "item", "table", "code"] = "paragraph"

    @property
    def is_whole(self) -> bool:
        """Whether cutting the block would destroy its meaning."""
        return self.kind in ("table", "code")


@dataclass(frozen=True, slots=True)
class Document:
    """A document that was read. `title` is None if it does not give one."""

    title: str | None
    elements: Sequence[Heading | Block]


def paragraphs(text: str) -> Iterator[Block]:
    """The paragraphs of a text in which blank lines separate them."""
    return (Block(line) for part in re.split(r"\n\s*\n", text) if (line := one_line(part)))


def table(rows: Iterable[Sequence[str]]) -> Block:
    """A table, one row per line."""
    return Block("\n".join(f"| {' | '.join(map(one_line, row))} |" for row in rows if any(map(str.strip, row))), "table")
