"""reStructuredText, read as the HTML that docutils makes of it. No other file is read, and no raw HTML is kept.

Sphinx's directives and roles, which docutils alone does not know, are read as the text in them.
"""

import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refinery.errors import RecordError
from refinery.passages.documents.base import Document
from refinery.passages.documents.encoding import decoded
from refinery.passages.documents.html import read_html

if TYPE_CHECKING:
    from docutils.nodes import Node

_DIRECTIVE = re.compile(r"^[ \t]*\.\. ([a-zA-Z][\w:.+-]*)::", re.MULTILINE)
_ROLE = re.compile(r":([a-zA-Z][\w:.+-]{0,60}):`")
_TARGET = re.compile(r"\s*<[^<>]*>$")  # of a role's text: `the guide <guide>`
_NOT_TEXT = frozenset("toctree index currentmodule module highlight literalinclude automodule autoclass autofunction testsetup".split())
_LONGEST_LINE = 10_000  # docutils reads nothing of a text with a longer one, because replacements could make it much longer
_SETTINGS = {
    "_disable_config": True,
    "doctitle_xform": False,
    "embed_stylesheet": False,
    "file_insertion_enabled": False,
    "halt_level": 5,
    "initial_header_level": 1,
    "line_length_limit": _LONGEST_LINE,
    "raw_enabled": False,
    "report_level": 5,
    "syntax_highlight": "none",
}


def read_rst(content: bytes, path: Path) -> Document:
    """The title is that of the only first-level section. Raises RecordError for content that is not text, and for a very long line."""
    from docutils.core import publish_parts

    text = decoded(content, path)
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > _LONGEST_LINE:
            raise RecordError(f"{path}:{number}: has more than {_LONGEST_LINE:,} letters. Break the line, or remove the file.")
    _know_directives(set(_DIRECTIVE.findall(text)))
    _know_roles(set(_ROLE.findall(text)))
    return read_html(publish_parts(text, writer="html5", settings_overrides=_SETTINGS).get("html_body", "").encode(), path)


def _know_directives(names: set[str]) -> None:
    """Let docutils read the content of directives that are not its own."""
    from docutils import nodes
    from docutils.parsers.rst import Directive, directives
    from docutils.parsers.rst.languages import en

    class Unknown(Directive):
        has_content, optional_arguments, final_argument_whitespace = True, 1, True
        option_spec: Any = defaultdict(lambda: directives.unchanged)

        def run(self) -> "list[Node]":
            inside = nodes.container()
            if self.name not in _NOT_TEXT:
                inside += [nodes.paragraph("", argument) for argument in self.arguments]
                self.state.nested_parse(self.content, self.content_offset, inside)
            return [inside]

    for name in names - en.directives.keys():
        directives.register_directive(name, Unknown)


def _know_roles(names: set[str]) -> None:
    from docutils import nodes
    from docutils.parsers.rst import roles
    from docutils.parsers.rst.languages import en

    def read(role: str, raw: str, text: str, line: int, inliner: Any, options: Any = None, content: Any = None) -> Any:
        return [nodes.inline(raw, _TARGET.sub("", text).lstrip("~!"))], []

    for name in names - en.roles.keys():
        roles.register_local_role(name, read)
