"""`refinery bench STAGE` and `refinery bench retrieve`."""

import argparse
import json
from typing import Any

from refinery.errors import RecipeError
from refinery.runtime.stages import stages

GROUP = "Pipeline"
HELP = "measure a stage, or our BM25, against its alternative, in one run"
_RETRIEVE = "retrieve"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("stage", choices=[*stages(), _RETRIEVE])
    parser.add_argument("--json", action="store_true", help="print only JSON")
    parser.add_argument(
        "--peers",
        metavar="NAME=PYTHON,...",
        help="measure distill beside curator, datatrove and a floor: the Python of each one's virtual environment, or a folder with one "
        "environment per name; `floor` alone needs none (benchmarks/README.md)",
    )
    parser.add_argument("--rows", type=int, default=2048, help="with --peers: rows of each measurement (default: 2048)")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[10_000, 100_000],
        metavar="N",
        help="retrieve: corpora of so many passages (default: 10000 100000)",
    )
    parser.add_argument("--repeats", type=int, default=3, help="with --peers: the median of so many is printed (default: 3)")


def run(arguments: argparse.Namespace) -> None:
    """Print the measurements; the stage's `benchmark/run.py`, or `refinery/benchmark/retrieve.py`, says what each of them means."""
    if min(arguments.rows, arguments.repeats, *arguments.sizes) < 1:
        raise RecipeError(f"--rows {arguments.rows} --repeats {arguments.repeats}: both must be at least 1, and so must --sizes.")
    print(json.dumps(_measured(arguments), indent=None if arguments.json else 2))


def _measured(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.stage == _RETRIEVE:
        from refinery.benchmark.retrieve import measure

        if arguments.peers is not None:
            raise RecipeError("refinery bench retrieve has peers of its own; leave out --peers.")
        return measure(arguments.sizes)
    stage = stages()[arguments.stage]
    return stage.measure() if arguments.peers is None else stage.compare(arguments.peers, rows=arguments.rows, repeats=arguments.repeats)
