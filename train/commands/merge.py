"""`refinery merge RUN`."""

import argparse
from pathlib import Path

GROUP = "Models"
HELP = "write an adapter and its base as one whole checkpoint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="output_dir of a train run with an adapter")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder for the checkpoint; must not exist")
    parser.add_argument(
        "--dtype",
        choices=["auto", "float32", "bfloat16", "float16"],
        default="auto",
        help="dtype of the written weights (default: that of the run)",
    )
    parser.add_argument("--resume", action="store_true", help="keep the checkpoint in DIR if it is there")


def run(arguments: argparse.Namespace) -> None:
    """Merge, and print where the checkpoint is."""
    from train.families.merge import merge

    print(merge(arguments.folder, arguments.output, dtype=arguments.dtype, resume=arguments.resume))
