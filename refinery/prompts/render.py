"""Render a prompt file, and name its content by a hash for provenance.

A prompt is called by its file's name alone, which is the only one of its name in the three folders: `teacher/` holds what a labelling
teacher reads, `student/` what models are trained on, `decoders/` what the methods ask any model.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Self

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from jinja2.meta import find_referenced_templates

from refinery.runtime.fingerprint import short_sha256

_FOLDERS = tuple(Path(__file__).parent / name for name in ("teacher", "student", "decoders"))
# Autoescape is for HTML; a prompt is plain text, and outside text in it is encoded with control-token parsing off.
_ENVIRONMENT = Environment(loader=FileSystemLoader(_FOLDERS), undefined=StrictUndefined, autoescape=False)  # noqa: S701
_ENVIRONMENT.globals.clear()  # no prompt calls any, and jinja copies them for every rendering

_rendered: set[str] = set()


class Prompt(str):
    """A rendered prompt that remembers its file's name and what was filled in, so that a trace can keep both.

    `pair_of` takes out of the values the two texts that an encoder reads in the prompt's place, of a prompt that an encoder can be asked.
    """

    name: str
    values: dict[str, Any]
    pair_of: Callable[[dict[str, Any]], tuple[str, str]] | None = None

    @property
    def pair(self) -> tuple[str, str] | None:
        """What an encoder reads: a question, and a passage or "". None where it has no use for this prompt."""
        return self.pair_of(self.values) if self.pair_of else None

    def paired(self, pair_of: Callable[[dict[str, Any]], tuple[str, str]]) -> Self:
        """This prompt, which an encoder can be asked from now on."""
        self.pair_of = pair_of
        return self

    def rendered_with(self, **values: Any) -> "Prompt":
        """The same prompt with other values in the place of some."""
        prompt = render_prompt(self.name, **(self.values | values))
        prompt.pair_of = self.pair_of
        return prompt


def render_prompt(name: str, **values: Any) -> Prompt:
    """The text of the prompt file `<name>.jinja` with `values` filled in; a missing value raises jinja2.UndefinedError."""
    template = _template(name)
    prompt = Prompt("".join(template.root_render_func(template.new_context(values, shared=True))))  # `render`, without a copy of the values
    prompt.name, prompt.values = name, values
    _rendered.add(name)
    return prompt


def has_prompt(name: str) -> bool:
    """Whether there is such a prompt file."""
    return f"{name}.jinja" in _files()


def prompt_file(name: str) -> Path:
    """Where the prompt is. Raises KeyError where there is none."""
    return _files()[f"{name}.jinja"]


@cache
def _files() -> dict[str, Path]:
    return {path.name: path for folder in _FOLDERS for path in folder.glob("*.jinja")}


def rendered_prompts() -> dict[str, str]:
    """Names and hashes of the prompts that this process has rendered."""
    return {name: prompt_hash(name) for name in sorted(_rendered)}


@cache
def _template(name: str) -> Template:
    template = _ENVIRONMENT.get_template(f"{name}.jinja")
    template.globals = {}  # in place of a chain of empty ones, which is gone through for every rendering
    return template


@cache
def prompt_hash(name: str) -> str:
    """First 12 hex digits of the SHA-256 of the prompt file, followed by the files that it includes or imports."""
    return short_sha256(_source(f"{name}.jinja"))


def prompt_source(name: str) -> str:
    """The prompt file, followed by the files that it includes or imports."""
    return _source(f"{name}.jinja").decode()


def _source(file: str) -> bytes:
    text = _files()[file].read_bytes()
    named = find_referenced_templates(_ENVIRONMENT.parse(text.decode()))
    return text + b"".join(_source(other) for other in dict.fromkeys(filter(None, named)))
