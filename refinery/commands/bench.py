"""`refinery bench STAGE`."""

import argparse
import json

from refinery.errors import RecipeError
from refinery.runtime.stages import stages

GROUP = "Pipeline"
HELP = "measure a stage against its alternative, in one run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("stage", choices=list(stages()))
    parser.add_argument("--json", action="store_true", help="print only JSON")
    parser.add_argument(
        "--peers",
        metavar="NAME=PYTHON,...",
        help="measure distill beside curator, datatrove and a floor: the Python of each one's virtual environment, or a folder with one "
        "environment per name; `floor` alone needs none (benchmarks/README.md)",
    )
    parser.add_argument("--rows", type=int, default=2048, help="with --peers: rows of each measurement (default: 2048)")
    parser.add_argument("--repeats", type=int, default=3, help="with --peers: the median of so many is printed (default: 3)")


def run(arguments: argparse.Namespace) -> None:
    """Print the stage's measurements; its `benchmark/run.py` says what each of them means."""
    if min(arguments.rows, arguments.repeats) < 1:
        raise RecipeError(f"--rows {arguments.rows} --repeats {arguments.repeats}: both must be at least 1.")
    stage = stages()[arguments.stage]
    figures = stage.measure() if arguments.peers is None else stage.compare(arguments.peers, rows=arguments.rows, repeats=arguments.repeats)
    print(json.dumps(figures, indent=None if arguments.json else 2))
