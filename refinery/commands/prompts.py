"""`refinery prompts [NAME] [--copy DIR]`."""

import argparse
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from refinery.errors import RecipeError, RunDirError
from refinery.prompts.custom import check_replaceable, may_replace
from refinery.prompts.files import FOLDERS, SHIPPED, shipped_files
from refinery.prompts.variables import variable, variables
from refinery.text import did_you_mean, printable

GROUP = "Pipeline"
HELP = "list, show or copy the prompts that a recipe's own can replace"
_COMMENT = re.compile(r"\{# (.*?) -?#\}", re.DOTALL)
# The end of a comment's first sentence. The periods in "App. D" and "Sec. 2.1" do not end one.
_SENTENCE_END = re.compile(r"(?<!App)(?<!Sec)(?<!al)(?<!Eq)\.(?:\s|$)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="a folder to list (teacher, decoders, student), or a prompt to print")
    parser.add_argument("--copy", type=Path, metavar="DIR", help="copy NAME, or every prompt that can be replaced, into DIR")


def run(arguments: argparse.Namespace) -> None:
    """Copy the named prompts, print the named one with what fills it in, or list the named folder."""
    names = _named(arguments.name)
    if arguments.copy is not None:
        _copy(names, arguments.copy)
    elif names == [arguments.name]:
        print(_shown(arguments.name), end="")
    else:
        print("\n\n".join(_listed(folder.name, [name for name in names if _folder(name) == folder.name]) for folder in FOLDERS).strip())


def _named(name: str | None) -> list[str]:
    """The prompts that `name` means. Raises RecipeError when there are none."""
    found = [one for one in shipped_files() if name in (None, one, f"{one}.jinja", _folder(one))]
    if found:
        return found
    near = did_you_mean(name or "", shipped_files())
    raise RecipeError(f"no prompt or folder of prompts is called '{name}'.{near} `refinery prompts` lists all of them.")


def _folder(name: str) -> str:
    return shipped_files()[name].parent.name


def _listed(folder: str, names: Sequence[str]) -> str:
    width = max(map(len, names), default=0)
    lines = [f"  {name:{width}}  {', '.join(_variables(name)) or '(no variables)'}{_purpose(name)}" for name in names]
    return "\n".join([f"{folder}:", *lines]) if names else ""


def _variables(name: str) -> list[str]:
    """The variables of a prompt, those in brackets that a text may leave out."""
    return [one if kind == "shown" else f"[{one}]" for one, kind in variables(name, SHIPPED).items()]


def _purpose(name: str) -> str:
    """The first sentence of the comment that a prompt begins with, and whether it can be replaced."""
    comment = _COMMENT.match(SHIPPED.text(name))
    about = f" - {_SENTENCE_END.split(comment[1], maxsplit=1)[0]}" if comment else ""
    return about if may_replace(name) else f"{about} (cannot be replaced)"


def _shown(name: str) -> str:
    """The prompt after comments that say what fills it in and is not declared in it, so that the output is a prompt too."""
    text = SHIPPED.text(name)
    shown = zip(variables(name, SHIPPED), _variables(name), strict=True)
    lines = [f"{label}: {variable(name, one).about}" for one, label in shown if f"{{# {one}: " not in text]
    return "".join(f"{{# {line} -#}}\n" for line in lines) + text


def _copy(names: Sequence[str], folder: Path) -> None:
    """Copy the prompts. Raises an error before anything is written if one cannot be replaced or exists already."""
    if len(names) == 1:
        check_replaceable(names[0], shipped_files()[names[0]])
    files = [shipped_files()[name] for name in names if may_replace(name)]
    if taken := [folder / file.name for file in files if (folder / file.name).exists()]:
        raise RunDirError(f"{taken[0]}: exists already. Remove it, or give another folder with --copy.")
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copyfile(file, folder / file.name)
    print(f"{len(files)} prompts copied. Change them, and set `prompts: {printable(str(folder))}` in a recipe.")
