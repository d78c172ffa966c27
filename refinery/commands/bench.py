"""`refinery bench STAGE`."""

import argparse
import json

from refinery.runtime.stages import stages

GROUP = "Pipeline"
HELP = "measure a stage against its alternative, in one run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("stage", choices=list(stages()))
    parser.add_argument("--json", action="store_true", help="print only JSON")


def run(arguments: argparse.Namespace) -> None:
    """Print the stage's measurements; its `benchmark/run.py` says what each of them means."""
    print(json.dumps(stages()[arguments.stage].measure(), indent=None if arguments.json else 2))
