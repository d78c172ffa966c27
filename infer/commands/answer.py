"""`refinery answer QUESTION`."""

import argparse
from pathlib import Path

GROUP = "Models"
HELP = "answer one question and print its trace"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("question")
    parser.add_argument("--run", type=Path, required=True, help="output_dir of an infer run, or of the demo", dest="folder")
    parser.add_argument("--decoder", default="ra_isf", help="which of the demo's decoders answers (default: ra_isf)")


def run(arguments: argparse.Namespace) -> None:
    """Answer with the run's decoder, models and retriever."""
    from rich.console import Console

    from infer.api import load
    from refinery.reporting.results import print_trace

    inside = arguments.folder / "infer" / arguments.decoder
    with load(inside if inside.is_dir() else arguments.folder) as pipeline:
        print_trace(pipeline.ask(arguments.question), Console())
