"""Command-line arguments with one-line error messages, which suggest the nearest name for a misspelled one."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from refinery.text import did_you_mean, printable


class Parser(argparse.ArgumentParser):
    """A parser that prints one line for an error instead of its usage. Options cannot be abbreviated."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Print the line and exit with code 2."""
        end = "" if message.endswith(("?", ".")) else "."
        self.exit(2, f"error: {printable(message)}{end} See `{self.prog} --help`.\n")

    def refuse_unknown(self, arguments: Sequence[str]) -> None:
        """Exit if there are arguments that no option or position takes."""
        if arguments:
            hint = did_you_mean(arguments[0].partition("=")[0], list(self._option_string_actions))
            self.error(f"unrecognized arguments: {' '.join(arguments)}.{hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(action, f"'{value}' is not one of {', '.join(choices)}.{did_you_mean(str(value), choices)}")
