"""Render a prompt file, and name its content by a hash for provenance.

A prompt is referred to by its file's name alone, which is unique in the three folders: `teacher/` holds the prompts of labeling teachers,
`student/` those that models are trained on, and `decoders/` those that the methods send to any model. A run may have its own text for some
of them, and a plugin from outside the project its own prompts beside its module.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self

from refinery.prompts.files import SHIPPED, PromptFiles, found_file, shipped_files

_in_use: ContextVar[PromptFiles] = ContextVar("prompts", default=SHIPPED)
_rendered: set[str] = set()


class Prompt(str):
    """A rendered prompt that remembers its file's name and the values that were filled in, so that a trace can keep both.

    For a prompt that an encoder can answer, `pair_of` extracts from the values the two texts that the encoder reads instead.
    `examples` are the prompts and replies that a chat shows before it.
    """

    name: str
    values: dict[str, Any]
    pair_of: Callable[[dict[str, Any]], tuple[str, str]] | None = None
    examples: "tuple[tuple[Prompt, str], ...]" = ()

    @property
    def pair(self) -> tuple[str, str] | None:
        """The texts that an encoder reads: a question, and a passage or "". None if this prompt is not for encoders."""
        return self.pair_of(self.values) if self.pair_of else None

    def paired(self, pair_of: Callable[[dict[str, Any]], tuple[str, str]]) -> Self:
        """This prompt in a form that an encoder can answer too."""
        self.pair_of = pair_of
        return self

    def after(self, examples: "tuple[tuple[Prompt, str], ...]") -> Self:
        """This prompt, preceded by these prompts and replies as examples."""
        self.examples = examples
        return self

    def rendered_with(self, **values: Any) -> "Prompt":
        """The same prompt with some values replaced."""
        prompt = render_prompt(self.name, **(self.values | values))
        prompt.pair_of, prompt.examples = self.pair_of, self.examples
        return prompt


def render_prompt(name: str, **values: Any) -> Prompt:
    """The text of the prompt file `<name>.jinja` with `values` filled in; a missing value raises jinja2.UndefinedError.

    A name that is neither shipped nor beside a plugin raises PluginError. If a run uses its own text (`use_prompts`), a fault in it raises
    RecipeError.
    """
    prompt = Prompt(_in_use.get().render(name, values))
    prompt.name, prompt.values = name, values
    _rendered.add(name)
    return prompt


def turns_of(prompt: str) -> tuple[tuple[str, str], ...]:
    """A prompt as (role, text) turns: its examples, then the prompt itself."""
    if not (isinstance(prompt, Prompt) and prompt.examples):
        return (("user", prompt),)
    return (*(turn for asked, reply in prompt.examples for turn in (("user", asked), ("assistant", reply))), ("user", prompt))


@contextmanager
def use_prompts(files: PromptFiles | None) -> Generator[None]:
    """Render from `files`, or from the shipped prompts, in this block and in the tasks that are started in it."""
    token = _in_use.set(files or SHIPPED)
    try:
        yield
    finally:
        _in_use.reset(token)


def has_prompt(name: str) -> bool:
    """Whether there is such a prompt file."""
    return found_file(name) is not None


def prompt_file(name: str) -> Path:
    """The path of a shipped prompt. Raises KeyError if there is none."""
    return shipped_files()[name]


def is_replaced(name: str) -> bool:
    """Whether the run replaces the shipped prompt, or a file that it includes."""
    return prompt_hash(name) != SHIPPED.hash(name)


def rendered_prompts() -> dict[str, str]:
    """Names and hashes of the prompts that this process has rendered."""
    return {name: prompt_hash(name) for name in sorted(_rendered)}


def prompt_hash(name: str) -> str:
    """First 12 hex digits of the SHA-256 of the prompt file, followed by the files that it includes or imports."""
    return _in_use.get().hash(name)


def prompt_source(name: str) -> str:
    """The prompt file, followed by the files that it includes or imports."""
    return _in_use.get().source(name)
