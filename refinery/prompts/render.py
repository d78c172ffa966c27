"""Render a prompt file, and name its content by a hash for provenance."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

_FOLDER = Path(__file__).parent
# Autoescape is for HTML; a prompt is plain text, and outside text in it is encoded with control-token parsing off.
_ENVIRONMENT = Environment(loader=FileSystemLoader(_FOLDER), undefined=StrictUndefined, autoescape=False)  # noqa: S701
_ENVIRONMENT.globals.clear()  # no prompt calls any, and jinja copies them for every rendering

_rendered: set[str] = set()


def render_prompt(name: str, **values: Any) -> str:
    """The text of `refinery/prompts/<name>.jinja` with `values` filled in; a missing value raises jinja2.UndefinedError."""
    template = _template(name)
    text = "".join(template.root_render_func(template.new_context(values)))  # `render`, without a copy of the values
    _rendered.add(name)
    return text


def rendered_prompts() -> dict[str, str]:
    """Names and hashes of the prompts that this process has rendered."""
    return {name: prompt_hash(name) for name in sorted(_rendered)}


@cache
def _template(name: str) -> Template:
    return _ENVIRONMENT.get_template(f"{name}.jinja")


@cache
def prompt_hash(name: str) -> str:
    """First 12 hex digits of the SHA-256 of the prompt file."""
    return hashlib.sha256((_FOLDER / f"{name}.jinja").read_bytes()).hexdigest()[:12]
