"""`refinery bench STAGE`."""

import argparse
import importlib
import json

HELP = "measure a stage against its alternative, in one run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("stage", choices=["distill", "train", "infer"])
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")


def run(arguments: argparse.Namespace) -> None:
    """Print the stage's figures; what each means stands in its `benchmark/run.py`."""
    figures = importlib.import_module(f"{arguments.stage}.benchmark.run").measure()
    print(json.dumps(figures, indent=None if arguments.json else 2))
