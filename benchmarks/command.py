"""The command line that every benchmark has: figures as JSON on stdout, and an error as one line."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from refinery.runtime.recipes.arguments import Parser
from refinery.runtime.run.command import configure_logging, guarded


def bench_parser(name: str, description: str) -> Parser:
    """The arguments of `python -m benchmarks.NAME`."""
    parser = Parser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--json", action="store_true", help="print the figures on one line")
    return parser


def print_figures(measure: Callable[[], dict[str, Any]], *, on_one_line: bool) -> int:
    """Measure, and print the figures. Returns the exit code."""
    configure_logging()
    return guarded(lambda: print(json.dumps(measure(), indent=None if on_one_line else 2)), traceback=False)


def measure_alone(name: str, description: str, measure: Callable[[], dict[str, Any]], argv: Sequence[str] | None = None) -> int:
    """Run a benchmark that has no other arguments. Returns the exit code."""
    return print_figures(measure, on_one_line=bench_parser(name, description).parse_args(argv).json)
