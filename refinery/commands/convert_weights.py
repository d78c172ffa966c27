"""`refinery convert-weights MODEL --output DIR`."""

import argparse
from pathlib import Path

GROUP = "Models"
HELP = "write a checkpoint's .bin weights as safetensors, without running code from it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("model", metavar="MODEL", help="a folder with pytorch_model.bin, or owner/name[@revision] on the hub")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the new folder, to name in recipes")


def run(arguments: argparse.Namespace) -> None:
    """Convert the weights and print the files that were written."""
    from refinery.llms.weights.convert import convert_weights
    from refinery.text import printable

    for file in convert_weights(arguments.model, arguments.output):
        print(printable(f"{file}: {file.stat().st_size / 1e6:,.1f} MB"))
