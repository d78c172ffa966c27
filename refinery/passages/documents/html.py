"""HTML: the text of the page, or of its one main element, without scripts, styles, navigation, and what is hidden."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from refinery.passages.documents.base import Block, Document, Heading, table
from refinery.text import one_line

if TYPE_CHECKING:
    from bs4 import BeautifulSoup
    from bs4.element import NavigableString, Tag

_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_BLOCKS = (
    *_HEADINGS,
    *("address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure footer form header").split(),
    *("hr li main ol p pre section summary table tbody td tfoot th thead tr ul").split(),
)
_NOT_TEXT = (
    "script, style, noscript, template, nav, svg, math annotation, iframe, object, button, select, textarea, [hidden], [aria-hidden=true], "
    "[role=navigation], [role=banner], [role=contentinfo], [role=search], body > header, body > footer"
)

_PERMALINKS = ("¶", "§", "#")  # beside headings, in generated documentation


def read_html(content: bytes, path: Path) -> Document:
    """The title is that of the only first-level heading, or of the page. The encoding is the one that the page declares."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(content, "lxml")
    title = one_line(soup.title.get_text()) if soup.title else ""
    root = _root(soup)
    _unite_lines(soup, root)
    first = [one_line(heading.get_text()) for heading in root.find_all("h1")]
    return Document((first[0] if len(first) == 1 else title) or None, list(_elements(root)))


def _root(soup: "BeautifulSoup") -> "Tag":
    """The element that holds the page's text."""
    for tag in soup.select(_NOT_TEXT):
        if not (tag.name == "header" and tag.find("h1")):
            tag.extract()
    for link in soup.find_all("a"):
        if link.get_text().strip() in _PERMALINKS:
            link.extract()
    main = soup.select("main, [role=main]")
    return main[0] if len(main) == 1 else soup.body or soup


def _unite_lines(soup: "BeautifulSoup", root: "Tag") -> None:
    """Make each table and each piece of code one string. A table with headings or tables in it only arranges the page, and stays."""
    for line_break in root.find_all("br"):
        line_break.replace_with("\n")
    for code in root.find_all("pre"):
        code.string = code.get_text().strip("\n")
    for found in root.find_all("table"):
        if not found.find(["table", "pre", *_HEADINGS]):
            rows = [[cell.get_text(" ") for cell in row.find_all(["td", "th"])] for row in found.find_all("tr")]
            caption = [part.extract() for part in found.find_all("caption")]
            found.string = table(rows).text
            for part in caption:
                found.insert_before(part)


def _elements(root: "Tag") -> Iterator[Heading | Block]:
    for _, together in groupby(_strings(root), key=lambda pair: id(pair[0])):
        pairs = list(together)
        owner, text = pairs[0][0], "".join(string for _, string in pairs)
        if not text.strip():
            continue
        if owner.name in _HEADINGS:
            yield Heading(int(owner.name[1]), one_line(text))
        elif owner.name in ("pre", "table"):
            yield Block(text, "code" if owner.name == "pre" else "table")
        elif "li" in (owner.name, owner.parent.name if owner.parent else ""):
            yield Block(f"- {one_line(text)}", "item")
        else:
            yield Block(one_line(text))


def _strings(root: "Tag") -> Iterator[tuple["Tag", "NavigableString"]]:
    """Each string with the block that holds it. Comments and declarations are strings of other types."""
    from bs4.element import NavigableString

    for node in root.descendants:
        if type(node) is NavigableString:
            yield node.find_parent(_BLOCKS) or root, node
