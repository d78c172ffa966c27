"""Prompt files as jinja templates, by their bare names, with a hash of what each consists of."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import BaseLoader, Environment, FileSystemLoader, StrictUndefined, Template
from jinja2.meta import find_referenced_templates

from refinery.runtime.fingerprint import short_sha256

FOLDERS = tuple(Path(__file__).parent / name for name in ("teacher", "student", "decoders"))


class PromptFiles:
    """Templates that are compiled when they are first used. Nothing is called in them, so they have no globals."""

    def __init__(self, environment: Environment) -> None:
        environment.globals.clear()  # jinja copies them for every rendering
        self.environment = environment
        self._templates: dict[str, Template] = {}
        self._sources: dict[str, str] = {}
        self._hashes: dict[str, str] = {}

    def render(self, name: str, values: dict[str, Any]) -> str:
        """The text of a prompt with `values` filled in; a missing value raises jinja2.UndefinedError."""
        template = self.template(name)
        return "".join(template.root_render_func(template.new_context(values, shared=True)))  # `render`, without a copy of the values

    def template(self, name: str) -> Template:
        """The compiled prompt."""
        if name not in self._templates:
            self._templates[name] = template = self.environment.get_template(f"{name}.jinja")
            template.globals = {}  # in place of a chain of empty ones, which is gone through for every rendering
        return self._templates[name]

    def hash(self, name: str) -> str:
        """First 12 hex digits of the SHA-256 of the prompt file, followed by the files that it includes or imports."""
        if name not in self._hashes:
            self._hashes[name] = short_sha256(self.source(name).encode())
        return self._hashes[name]

    def source(self, name: str) -> str:
        """The prompt file, followed by the files that it includes or imports."""
        if name not in self._sources:
            self._sources[name] = self.text(name) + "".join(self.source(other) for other in self.included(name))
        return self._sources[name]

    def included(self, name: str) -> list[str]:
        """The names of the prompt files that a prompt includes or imports."""
        named = find_referenced_templates(self.environment.parse(self.text(name)))
        return [file.removesuffix(".jinja") for file in dict.fromkeys(filter(None, named))]

    def text(self, name: str) -> str:
        """The prompt file alone."""
        loader = self.environment.loader
        assert isinstance(loader, BaseLoader)
        return loader.get_source(self.environment, f"{name}.jinja")[0]


@cache
def shipped_files() -> dict[str, Path]:
    """Where each prompt is that ships, by its name."""
    return {path.stem: path for folder in FOLDERS for path in sorted(folder.glob("*.jinja"))}


# Autoescape is for HTML; a prompt is plain text, and outside text in it is encoded with control-token parsing off.
SHIPPED = PromptFiles(Environment(loader=FileSystemLoader(FOLDERS), undefined=StrictUndefined, autoescape=False))  # noqa: S701
