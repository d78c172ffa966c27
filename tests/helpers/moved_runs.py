"""What the commands show of a finished run."""

from collections.abc import Mapping

import pytest

from refinery.cli import main

COMMANDS = {"view": "view runs/run", "page": "view runs/run --output page.html", "plot": "plot runs/run --output plot.png"}


def shown_by(commands: Mapping[str, str], capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[int, str, str]]:
    """The exit code of each command in the working directory, and what it printed as results and as errors."""
    shown = {}
    for name, command in commands.items():
        capsys.readouterr()
        shown[name] = (main(command.split()), *capsys.readouterr())
    return shown


def codes(shown: Mapping[str, tuple], commands: Mapping[str, str]) -> dict[str, int]:
    """The exit codes alone."""
    return {name: shown[name][0] for name in commands}
