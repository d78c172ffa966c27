"""The sections of a document: the text between two headings, with the title and the anchor for its passages."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from refinery.passages.documents.base import Block, Document, Heading

_MOST_WORDS_OF_A_HEADING = 30  # a longer one is a paragraph: in Markdown, a rule right below a paragraph makes it a heading
_LONGEST_TITLE = 500  # letters
_LONGEST_SLUG = 60
BETWEEN = " › "  # separates the document and its headings in a title


@dataclass(frozen=True, slots=True)
class Section:
    """Text under one heading. The anchor is empty before the first heading, and otherwise unique in the document."""

    title: str  # the document's, then the headings above, from the highest
    anchor: str  # #section/subsection
    blocks: list[Block] = field(default_factory=list)


def sections(document: Document, name: str) -> Iterator[Section]:
    """The sections with text, in order. `name` is the title of a document without one.

    The only first-level heading of a document is its title, unless the document gives another. A section without text has no passages:
    its heading is in the titles of the sections below it.
    """
    elements = [_heading_or_text(element) for element in document.elements]
    title = _short(document.title) or _only_first_level(elements) or name
    used: dict[str, int] = {}
    path: list[Heading] = []
    section = Section(title, "")
    for element in elements:
        if isinstance(element, Block):
            section.blocks.append(element)
        elif path or not _is_title(element, title):
            if section.blocks:
                yield section
            path = [*(above for above in path if above.level < element.level), element]
            shown = path[1:] if _is_title(path[0], title) else path
            section = Section(BETWEEN.join((title, *(heading.text for heading in shown))), _anchor(path, used))
    if section.blocks:
        yield section


def _heading_or_text(element: Heading | Block) -> Heading | Block:
    if isinstance(element, Heading) and not (_short(element.text) and len(element.text.split()) <= _MOST_WORDS_OF_A_HEADING):
        return Block(element.text)
    return element


def _short(title: str | None) -> str | None:
    """The title, or None if it is too long to be repeated in all passages below it."""
    return title if title and len(title) <= _LONGEST_TITLE else None


def _only_first_level(elements: Sequence[Heading | Block]) -> str | None:
    first = [element.text for element in elements if isinstance(element, Heading) and element.level == 1]
    return first[0] if len(first) == 1 else None


def _is_title(heading: Heading, title: str) -> bool:
    return heading.level == 1 and heading.text.casefold() == title.casefold()


def _anchor(path: Sequence[Heading], used: dict[str, int]) -> str:
    """The anchor with the next free number. `used` has the last number of each, so that equal headings are not counted anew each time."""
    anchor = unique = "#" + "/".join(_slug(heading.text) for heading in path)
    number = used.get(anchor, 1)
    while unique in used:
        number += 1
        unique = f"{anchor}-{number}"
    used[anchor] = number
    used.setdefault(unique, 1)
    return unique


def _slug(text: str) -> str:
    return "-".join(re.findall(r"\w+", text.lower()))[:_LONGEST_SLUG].rstrip("-") or "section"
