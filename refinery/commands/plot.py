"""`refinery plot RUN... --output FILE`."""

import argparse
from pathlib import Path

GROUP = "Results"
HELP = "plot runs of one stage as PNG or SVG: accuracy and cost, training curves, label balance"
READS_RUNS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "folders", type=Path, nargs="+", metavar="RUN", help="output_dir of runs of one stage; a demo's output_dir means its infer runs"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="file of the figure, .png or .svg")
    parser.add_argument(
        "--panel", action="append", default=[], metavar="NAME", help="draw this panel (may be repeated; default: all panels)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Draw the panels that the runs have data for."""
    from refinery.reporting.figures import save_figure
    from refinery.runtime.run.run_dir import stage_of
    from refinery.text import printable

    stage = stage_of(arguments.folders)
    drawn = save_figure(stage.panels(arguments.folders), arguments.output, only=arguments.panel)
    print(printable(f"{arguments.output}: {', '.join(drawn)}"))
