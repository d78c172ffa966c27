"""`refinery convert-weights MODEL --output DIR`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from refinery.runtime.forecast import Expected, Forecast

GROUP = "Models"
HELP = "write a checkpoint's .bin weights as safetensors, without running code from it"

# Bytes of a parameter in 16 and in 32 bits, which are on disk twice: as downloaded, and converted.
_BYTES, _COPIES = (2, 4), 2


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


def forecast(words: Sequence[str], expected: Expected) -> Forecast:
    """The disk that the downloaded and the converted weights take."""
    from refinery.llms.weights.shapes import parameters_of

    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    model: str = parser.parse_args(list(words)).model
    if (parameters := parameters_of(model)) is None:
        return Forecast(disk_bytes=None)
    low, high = (float(parameters * size) for size in _BYTES)
    return Forecast(disk_bytes=(low * _COPIES, high * _COPIES))
