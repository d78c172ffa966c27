"""Markdown as GitHub writes it: front matter, headings, lists, tables, code and footnotes. Link targets and markup are not text."""

import html
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from refinery.passages.documents.base import Block, Document, Heading, paragraphs, table
from refinery.passages.documents.encoding import decoded
from refinery.text import one_line

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# An unclosed one extends to the end, as in a browser; otherwise each one would be searched for its end in all of the remaining text.
_NOT_TEXT = re.compile(r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^>]*>")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_NESTING = 100  # of quotations and lists; the parser leaves out anything deeper


def read_markdown(content: bytes, path: Path) -> Document:
    """The title comes from the front matter, which is otherwise ignored. Raises RecordError for content that is not text."""
    return markdown_document(decoded(content, path))


def markdown_document(text: str, *, html: bool = True) -> Document:
    """The document that Markdown describes. Without `html`, tags are text."""
    tokens = _parser(front_matter=True, html=html).parse(text)
    title = _title(tokens[0].content) if tokens and tokens[0].type == "front_matter" else ""
    if title is None:  # two horizontal rules with text between them
        tokens = _parser(front_matter=False, html=html).parse(text)
    return Document(title or None, _Elements(tokens).found)


@cache
def _parser(*, front_matter: bool, html: bool) -> "MarkdownIt":
    from markdown_it import MarkdownIt
    from mdit_py_plugins.footnote import footnote_plugin
    from mdit_py_plugins.front_matter import front_matter_plugin

    parser = MarkdownIt("commonmark", {"maxNesting": _NESTING, "html": html}).enable(["table", "strikethrough"]).use(footnote_plugin)
    return parser.use(front_matter_plugin) if front_matter else parser


def _title(front_matter: str) -> str | None:
    """The title as it is written, empty if there is none, or None for text that is not front matter.

    No values are constructed, because a few lines of aliases may expand to a billion of them.
    """
    try:
        values = yaml.compose(front_matter, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    if not isinstance(values, yaml.MappingNode):
        return "" if values is None else None
    titles = [value for key, value in values.value if isinstance(key, yaml.ScalarNode) and key.value == "title"]
    texts = [one_line(title.value) for title in titles if isinstance(title, yaml.ScalarNode) and not title.tag.endswith(":null")]
    return texts[-1] if texts else ""


class _Elements:
    """Collects the elements that a sequence of tokens describes."""

    def __init__(self, tokens: "Sequence[Token]") -> None:
        self.found: list[Heading | Block] = []
        self._marker = ""  # of the current list item
        self._rows: list[list[str]] = []
        opened = ""  # the element that the next inline token fills
        for token in tokens:
            if token.type == "inline":
                self._add_text(opened, _plain(token))
            else:
                opened = token.tag
                self._add(token)

    def _add_text(self, opened: str, text: str) -> None:
        if opened in _HEADINGS:
            self.found.append(Heading(int(opened[1]), text))
        elif opened in ("th", "td"):
            self._rows[-1].append(text)
        elif text:
            self.found.append(Block(self._marker + text, "item" if self._marker else "paragraph"))
            self._marker = ""

    def _add(self, token: "Token") -> None:
        match token.type:
            case "list_item_open":
                self._marker = f"{token.info}{token.markup} " if token.info else "- "
            case "fence" | "code_block":
                self.found.append(Block(token.content.strip("\n"), "code"))
            case "html_block":
                self.found += paragraphs(html.unescape(_without_markup(token.content)))
            case "tr_open":
                self._rows.append([])
            case "table_close":
                self.found.append(table(self._rows))
                self._rows = []
            case "footnote_block_open":  # the parser moves footnotes to the end
                self.found.append(Heading(2, "Footnotes"))


def _without_markup(block: str) -> str:
    text = _NOT_TEXT.sub(" ", block)
    end = text.rfind(">") + 1  # no tag is closed after it
    return _TAG.sub(" ", text[:end]) + text[end:]


def _plain(token: "Token") -> str:
    """The words of a line, without its markup."""
    parts = (" " if child.type in ("softbreak", "hardbreak") or _is_break(child) else _word(child) for child in token.children or [])
    return one_line("".join(parts))


def _is_break(child: "Token") -> bool:
    return child.type == "html_inline" and child.content.lower().startswith("<br")


def _word(child: "Token") -> str:
    return child.content if child.type in ("text", "code_inline", "image") else ""
