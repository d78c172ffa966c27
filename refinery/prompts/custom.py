"""A user's own prompts: a folder of files that replace the shipped ones with the same names.

They are rendered in jinja's sandbox, and tried with sample values before a run pays for anything. A run keeps a copy of them.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from jinja2 import FunctionLoader, StrictUndefined, TemplateSyntaxError, nodes
from jinja2.meta import find_referenced_templates
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel

from refinery.errors import RecipeError
from refinery.prompts.files import SHIPPED, PromptFiles, load_file, shipped_files
from refinery.prompts.variables import uses, variable, variables
from refinery.runtime.files.fingerprint import text_fingerprint
from refinery.text import did_you_mean, not_utf8, one_line, without_mark

_COPY = "prompts"  # the copy's folder in a run
_TRAINED = "models are trained on the text that ships"
_FIXED = {
    "nli": _TRAINED,
    "self_rag": _TRAINED,
    "judge": "scores of two texts cannot be compared",
    "housekeeping": "a chat interface writes what it asks itself",
}


def own_prompts(folder: Path, run: Path | None = None) -> "OwnPrompts":
    """The checked prompts of a folder, or, if it no longer exists, the copy that the run in `run` has kept.

    Raises RecipeError, in one line that names file and line, for a text that cannot be used.
    """
    if not folder.is_dir() and run is not None and prompts_of(run).is_dir():
        return own_prompts(prompts_of(run))
    if not folder.is_dir():
        raise RecipeError(f"{folder}: there is no such folder of prompts. `refinery prompts --copy {folder}` makes one.")
    paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    if not paths:
        raise RecipeError(f"{folder}: contains no prompt. `refinery prompts NAME --copy {folder}` copies one to change.")
    return _checked(OwnPrompts({_name(path): (str(path), _text(path)) for path in paths}))


def prompts_of(run: Path) -> Path:
    """The folder where the run in `run` keeps a copy of its own prompts, if it used any."""
    return run / _COPY


def check_replaceable(name: str, where: Path) -> None:
    """Raise RecipeError if a run may not have its own text of this prompt."""
    if reason := _why_not(name):
        raise RecipeError(f"{where}: cannot be replaced, because {reason}.")


def may_replace(name: str) -> bool:
    """Whether a run may have its own text of this prompt."""
    return _why_not(name) is None


class OwnPrompts(PromptFiles):
    """The shipped files, some of them replaced: `own` has the path and text of each replacement by its name."""

    def __init__(self, own: Mapping[str, tuple[str, str]]) -> None:
        self.own = own
        super().__init__(_Sandbox(loader=FunctionLoader(self._load), undefined=StrictUndefined, autoescape=False))

    def _load(self, file: str) -> tuple[str, str, None]:
        name = file.removesuffix(".jinja")
        return (self.own[name][1], self.own[name][0], None) if name in self.own else load_file(file)

    def render(self, name: str, values: dict[str, Any]) -> str:
        """The text of a prompt with `values` filled in. Raises RecipeError, which names file and line, if that fails."""
        try:
            return super().render(name, values)
        except Exception as error:
            place = _place(error.__traceback__) or f"{name}.jinja"
            raise RecipeError(f"{place}: cannot be rendered: {one_line(str(error)) or type(error).__name__}") from None

    def fingerprints(self) -> dict[str, str]:
        """The fingerprints for a run's `run.json`: the hash of each own prompt, and under `prompts` that of all of them together."""
        return {name: self.hash(name) for name in self.own} | {"prompts": text_fingerprint(self.own)}

    def keep(self, run: Path) -> None:
        """Write a copy into the run in `run`, replacing an earlier one."""
        folder = prompts_of(run)
        folder.mkdir(exist_ok=True)
        for path in folder.glob("*.jinja"):
            if path.stem not in self.own:
                path.unlink()
        for name, (_, text) in self.own.items():
            (folder / f"{name}.jinja").write_text(text, encoding="utf-8", newline="")

    def drop(self, run: Path) -> None:
        """Remove the copy from a run that was abandoned."""
        shutil.rmtree(prompts_of(run), ignore_errors=True)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, where a template sees only a record's fields, and nothing is random."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        del self.filters["random"]  # a request that differs each time would be paid for each time

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may read an attribute: only fields of a record, because pydantic's methods read files; else jinja's rules."""
        if isinstance(obj, BaseModel):
            return attr in type(obj).model_fields
        return super().is_safe_attribute(obj, attr, value)


def _name(path: Path) -> str:
    if path.suffix != ".jinja" or path.stem not in shipped_files():
        near = did_you_mean(path.name, [f"{name}.jinja" for name in filter(may_replace, shipped_files())])
        raise RecipeError(f"{path}: no prompt has this file name.{near} `refinery prompts` lists all of them.")
    check_replaceable(path.stem, path)
    return path.stem


def _why_not(name: str) -> str | None:
    return _TRAINED if shipped_files()[name].parent.name == "student" else _FIXED.get(name)


def _text(path: Path) -> str:
    try:
        content = without_mark(path.read_bytes())
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror}).") from None
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: {not_utf8(content, error)}") from None


def _checked(prompts: OwnPrompts) -> OwnPrompts:
    """The prompts, after checking each text alone and rendering every prompt that includes it with sample values."""
    for check in (_check_syntax, _check_included, _check_variables):
        for name in prompts.own:
            check(name, prompts)
    for name in filter(may_replace, shipped_files()):
        if prompts.hash(name) != SHIPPED.hash(name):
            _try(name, prompts)
    return prompts


def _check_syntax(name: str, prompts: OwnPrompts) -> None:
    path, text = prompts.own[name]
    try:
        prompts.environment.compile(text)
    except TemplateSyntaxError as error:
        raise RecipeError(f"{path}:{error.lineno}: {one_line(error.message or 'is not valid jinja')}") from None


def _check_included(name: str, prompts: OwnPrompts) -> None:
    """Check that the files that the text includes or imports are prompts, named in quotes, and that none includes this one again."""
    path, text = prompts.own[name]
    for node in prompts.environment.parse(text).find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
        for file in find_referenced_templates(nodes.Template([node])):
            other = (file or "").removesuffix(".jinja")
            if file != f"{other}.jinja" or other not in shipped_files():
                raise RecipeError(f"{path}:{node.lineno}: only a prompt can be included, by its file name in quotes.")
            if name in _reached(other, prompts):
                raise RecipeError(f"{path}:{node.lineno}: {file} includes {name}.jinja again, so the text has no end.")


def _reached(name: str, prompts: OwnPrompts) -> set[str]:
    """The prompt, and those that it includes or imports, directly or not."""
    found, waiting = set[str](), [name]
    while waiting:
        if (name := waiting.pop()) not in found and name in shipped_files():
            found.add(name)
            waiting += prompts.included(name)
    return found


def _check_variables(name: str, prompts: OwnPrompts) -> None:
    """Check that the text names only variables of the shipped one, and shows each that the shipped one shows."""
    path, known, used = prompts.own[name][0], variables(name, SHIPPED), uses(name, prompts)
    for use in used:
        if use.name not in known:
            where = prompts.own[use.prompt][0] if use.prompt in prompts.own else str(shipped_files()[use.prompt])
            near = did_you_mean(use.name, known)
            raise RecipeError(f"{where}:{use.line}: there is no variable '{use.name}'.{near} Available: {', '.join(known) or 'none'}.")
    missing = [one for one, kind in known.items() if kind == "shown" and one not in {use.name for use in used}]
    if missing:
        last = prompts.own[name][1].count("\n") or 1
        raise RecipeError(f"{path}:{last}: ends without {{{{ {missing[0]} }}}}, {variable(name, missing[0]).about}. Show it.")


def _try(name: str, prompts: OwnPrompts) -> None:
    """Render the prompt with full values, and with the sparsest values that a run may fill in."""
    known = variables(name, SHIPPED)
    prompts.render(name, {one: variable(name, one).value for one in known})
    prompts.render(name, {one: variable(name, one).bare for one, kind in known.items() if kind != "guarded"})


def _place(traceback: TracebackType | None) -> str:
    """The file and line of a template in which an error occurred."""
    place = ""
    while traceback is not None:
        template = traceback.tb_frame.f_globals.get("__jinja_template__")
        if template is not None:
            place = f"{template.filename}:{template.get_corresponding_lineno(traceback.tb_lineno)}"
        traceback = traceback.tb_next
    return place
