"""AsciiDoc, read as the Markdown that says the same: headings, paragraphs, lists, listings and tables. Includes are not followed."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from refinery.passages.documents.base import Document
from refinery.passages.documents.encoding import decoded
from refinery.passages.documents.markdown import markdown_document

_FENCE = "~~~~~~~~~~~~"  # longer than any that a listing is likely to hold
_WHOLE = re.compile(r"(-{4,}|\.{4,}|\+{4,}|`{3,}|\|={3,})\s*")  # what delimits listings, literals and tables
_COMMENT = re.compile(r"/{4,}\s*")
_AROUND = re.compile(r"(={4,}|\*{4,}|_{4,}|--)\s*")  # what delimits examples, sidebars, quotations and open blocks
_HEADING = re.compile(r"(={1,6})\s+(\S.*)")
_UNDERLINE = re.compile(r"([=\-~^+])\1+\s*")
_LEVELS = "=-~^+"
_NOT_TEXT = re.compile(r":[!\w][\w!-]*:|\[.*\]\s*$|//|\w+::\S*\[.*\]\s*$|'''|<<<|\+\s*$")
_LIST = re.compile(r"\s*(\*{1,5}|\.{1,5})\s+(.*)")
_TERM = re.compile(r"(\S.*?)(?::{2,4}|;;)(?:\s+(.*))?$")
_TITLE = re.compile(r"\.(?=\w)")
# The lengths are limited, because a line may begin thousands of links that do not end.
_LINK = re.compile(r"(?:link|xref|mailto|https?):[^\s\[]{1,500}\[([^\]]{1,500})\]|<<[^,<>]{1,500},([^<>]{1,500})>>")


def read_asciidoc(content: bytes, path: Path) -> Document:
    """The title is that of the only first-level heading. Raises RecordError for content that is not text."""
    return markdown_document("\n".join(_markdown(decoded(content, path).splitlines())), html=False)


def _markdown(lines: Iterable[str]) -> Iterator[str]:
    """Each line as Markdown. One line is held back, because the next may underline it."""
    within, held = "", ""
    for line in lines:
        if within:
            ends = line.strip() == within
            if not within.startswith("/"):
                yield _FENCE if ends else line
            within = "" if ends else within
        elif (under := _UNDERLINE.fullmatch(line)) and held.strip() and abs(len(line.strip()) - len(held.strip())) <= 2:
            held = f"{'#' * (_LEVELS.index(under[1]) + 1)} {held.strip()}"
        else:
            yield _line(held)
            held = line
            if _WHOLE.fullmatch(line) or _COMMENT.fullmatch(line):
                within, held = line.strip(), ""
                yield "" if within.startswith("/") else f"\n{_FENCE}"
    yield _line(held)


def _line(line: str) -> str:
    if _AROUND.fullmatch(line) or _NOT_TEXT.match(line):
        return ""
    if heading := _HEADING.fullmatch(line):
        return f"{'#' * len(heading[1])} {heading[2]}"
    if item := _LIST.fullmatch(line):
        return f"{'  ' * (len(item[1]) - 1)}- {_linked(item[2])}"
    if term := _TERM.fullmatch(line):
        return f"- {_linked(term[1])}: {_linked(term[2] or '')}"
    return _linked(_TITLE.sub("", line, count=1) if _TITLE.match(line) else line)


def _linked(line: str) -> str:
    return _LINK.sub(lambda link: link[1] or link[2], line)
