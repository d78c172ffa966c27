"""The command of a run, as a user would type it again."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from refinery.reporting.markdown import without_secrets

# The beginning of `sys.argv` when a module was run: `python -m distill`, or `python -m refinery.cli` for a project's steps.
_STAGES = {f"{name}/__main__.py": ("refinery", name) for name in ("distill", "train", "infer")}
_CLI = "refinery/cli.py"


def typed_command(words: Sequence[str]) -> str:
    """The command of a run's record on one line, without secrets: `refinery` however a stage was started, else the program's name."""
    if not words:
        return ""
    program = Path(words[0])
    module = "/".join(program.parts[-2:])
    named = ("refinery",) if module == _CLI else _STAGES.get(module, (program.name,))
    return shlex.join([*named, *map(without_secrets, words[1:])])
