"""The `refinery` command: the three stages, and every file of `refinery/commands`. It imports a stage only when that stage is asked for."""

import argparse
import difflib
import importlib
import pkgutil
import sys
from collections.abc import Sequence

from refinery import __version__, commands
from refinery.errors import RecipeError
from refinery.stage import configure_logging, guarded

_STAGES = {
    "distill": "label questions with a teacher",
    "train": "fine-tune a model on the labels",
    "infer": "answer questions with a decoder and score the answers",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in _STAGES:
        # The stages stand beside this package and are never imported by it; a name reaches them.
        return int(importlib.import_module(f"{arguments[0]}.__main__").main(arguments[1:]))
    if arguments and not arguments[0].startswith("-") and arguments[0] not in (names := _names()):
        return guarded(lambda: _refuse(arguments[0], names), traceback=False)
    parsed = build_parser().parse_args(arguments)
    configure_logging()
    return guarded(lambda: parsed.run(parsed), traceback=parsed.traceback)


def _names() -> list[str]:
    return [*_STAGES, *(found.name.replace("_", "-") for found in pkgutil.iter_modules(commands.__path__))]


def _refuse(name: str, names: Sequence[str]) -> None:
    nearest = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean '{nearest[0]}'? " if nearest else ""
    raise RecipeError(f"no command '{name}'. {hint}Available: {', '.join(names)}.")


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command; a stage parses its own arguments."""
    parser = argparse.ArgumentParser(prog="refinery", description="Distil, train and decode self-feedback RAG.")
    parser.add_argument("--version", action="version", version=f"refinery {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in _STAGES.items():
        subparsers.add_parser(name, help=f"{text}: refinery {name} RECIPE [key=value ...] [--dry-run] [--resume]")
    for found in pkgutil.iter_modules(commands.__path__):
        command = importlib.import_module(f"{commands.__name__}.{found.name}")
        subparser = subparsers.add_parser(found.name.replace("_", "-"), help=command.HELP, description=command.HELP)
        command.add_arguments(subparser)
        subparser.add_argument("--traceback", action="store_true", help="show where an error came from")
        subparser.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
