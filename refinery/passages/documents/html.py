"""HTML: the text of the page, or of its one main element or article, without scripts, styles, navigation, and hidden elements."""

import warnings
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from refinery.passages.documents.base import Block, Document, Heading, table
from refinery.text import one_line

if TYPE_CHECKING:
    from bs4 import BeautifulSoup
    from bs4.element import Tag

_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_BLOCKS = frozenset(
    (
        *_HEADINGS,
        *"address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure footer form header".split(),
        *"hr li main ol p pre section summary table tbody td tfoot th thead tr ul".split(),
    )
)
_NOT_TEXT = frozenset("script style noscript template nav svg annotation iframe object button select textarea".split())
_ROLES_NOT_TEXT = frozenset(["navigation", "banner", "contentinfo", "search"])
_MOST_SPANNED = 1 << 16  # rows, in HTML
_LONGEST_LABEL = 100  # letters of a cell that is repeated in each row that it spans
_PERMALINKS = ("¶", "§", "#")  # beside headings, in generated documentation


def read_html(content: bytes, path: Path) -> Document:
    """The title is that of the only first-level heading, or of the page. The encoding is the one that the page declares."""
    from bs4 import BeautifulSoup

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a feed, or a file that holds only an address: it is read as a page anyway
        soup = BeautifulSoup(content, "lxml")
    title = one_line(soup.title.get_text()) if soup.title else ""
    root = _root(soup)
    first = [one_line(_text(tag)) for tag in _tags(root, _named("h1"))]
    return Document((first[0] if len(first) == 1 else title) or None, list(_elements(root)))


def _root(soup: "BeautifulSoup") -> "Tag":
    """The element that holds the page's text: the only main element, else the only top-level article, else the body."""
    for is_wanted in (_is_main, _is_article):
        found = list(_tags(soup, is_wanted))
        if len(found) == 1:
            return found[0]
    return soup.body or soup


def _is_main(tag: "Tag") -> bool:
    return tag.name == "main" or tag.get("role") == "main"


def _is_article(tag: "Tag") -> bool:
    return tag.name == "article" or tag.get("role") == "article" or "articleBody" in str(tag.get("itemprop", "")).split()


def _elements(root: "Tag") -> Iterator[Heading | Block]:
    for owner, text in _texts(root):
        if owner.name in _HEADINGS:
            yield Heading(int(owner.name[1]), one_line(text))
        elif owner.name in ("pre", "table"):
            yield Block(text, "code" if owner.name == "pre" else "table")
        elif "li" in (owner.name, owner.parent.name if owner.parent else ""):
            yield Block(f"- {one_line(text)}", "item")
        else:
            yield Block(one_line(text))


def _texts(root: "Tag") -> Iterator[tuple["Tag", str]]:
    """Each block with its text. A block that contains others appears once for each stretch of its own text."""
    for _, together in groupby(_strings(root), key=lambda pair: id(pair[0])):
        pairs = list(together)
        if (text := "".join(string for _, string in pairs)).strip():
            yield pairs[0][0], text


def _strings(root: "Tag") -> Iterator[tuple["Tag", str]]:
    """Each string with the block that holds it. Comments and declarations are strings of other types.

    The tree is walked and not changed: Beautiful Soup takes as long to remove an element as its parent has children.
    """
    from bs4.element import NavigableString, Tag

    waiting = [(root, iter(root.contents))]
    while waiting:
        owner, nodes = waiting[-1]
        for node in nodes:
            if type(node) is NavigableString:
                yield owner, node
            elif isinstance(node, Tag) and _is_text(node):
                if node.name == "br":
                    yield owner, "\n"
                elif node.name == "pre":
                    yield node, _text(node).strip("\n")
                elif node.name == "table" and not _arranges_the_page(node):
                    yield from _table(node)
                else:
                    waiting.append((node if node.name in _BLOCKS else owner, iter(node.contents)))
                    break
        else:
            waiting.pop()


def _text(tag: "Tag") -> str:
    return "".join(string for _, string in _strings(tag))


def _arranges_the_page(found: "Tag") -> bool:
    """Whether a table contains headings, code or tables, and so is not a table of data."""
    return next(_tags(found, _named("table", "pre", *_HEADINGS)), None) is not None


def _table(found: "Tag") -> Iterator[tuple["Tag", str]]:
    """The captions, and the table as one string."""
    for caption in _tags(found, _named("caption")):
        yield caption, _text(caption)
    yield found, table(_rows(found)).text


def _rows(found: "Tag") -> Iterator[list[str]]:
    """The text of each cell. A cell that spans columns appears once, and one that spans rows appears in each of them within its section.

    If a spanning cell's text is too long for a label, the cell is empty in the rows below.
    """
    above: dict[int, _Cell] = {}  # by the column in which a cell begins
    section = None
    for row in _tags(found, _named("tr")):
        cells = dict(above) if row.parent is section else {}
        section, column = row.parent, 0
        for tag in _tags(row, _named("td", "th")):
            while column in cells:
                column += cells[column].columns
            cells[column] = _Cell(" ".join(text for _, text in _texts(tag)), _span(tag, "rowspan"), _span(tag, "colspan"))
        yield [cells[column].text for column in sorted(cells)]
        above = {column: cell.below() for column, cell in cells.items() if cell.rows > 1}


class _Cell(NamedTuple):
    text: str
    rows: int
    columns: int

    def below(self) -> "_Cell":
        return self._replace(text=self.text if len(self.text) <= _LONGEST_LABEL else "", rows=self.rows - 1)


def _span(tag: "Tag", name: str) -> int:
    """The number of rows or columns that a cell spans; 0 rows means all that are left, as in a browser."""
    said = str(tag.get(name, "1")).strip()
    number = int(said) if said.isascii() and said.isdigit() and len(said) < 6 else 1
    return _MOST_SPANNED if number == 0 and name == "rowspan" else max(number, 1)


def _named(*names: str) -> "Callable[[Tag], bool]":
    return lambda tag: tag.name in names


def _tags(root: "Tag", is_wanted: "Callable[[Tag], bool]") -> Iterator["Tag"]:
    """The visible elements that are wanted; of nested ones, only the outermost."""
    from bs4.element import Tag

    waiting = [iter(root.contents)]
    while waiting:
        for node in waiting[-1]:
            if isinstance(node, Tag) and _is_text(node):
                if is_wanted(node):
                    yield node
                else:
                    waiting.append(iter(node.contents))
                    break
        else:
            waiting.pop()


def _is_text(tag: "Tag") -> bool:
    if tag.name in _NOT_TEXT:
        return False
    if _is_outside_of_the_text(tag):
        return tag.name == "header" and tag.find("h1") is not None
    return tag.name != "a" or tag.get_text().strip() not in _PERMALINKS


def _is_outside_of_the_text(tag: "Tag") -> bool:
    hidden = "hidden" in tag.attrs or tag.get("aria-hidden") == "true"
    of_the_site = tag.name in ("header", "footer") and tag.parent is not None and tag.parent.name == "body"
    return hidden or of_the_site or tag.get("role") in _ROLES_NOT_TEXT
