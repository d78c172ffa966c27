"""`refinery compare RUN...`."""

import argparse
from pathlib import Path

GROUP = "Results"
HELP = "one table of several infer runs, with paired bootstrap intervals"
READS_RUNS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="output_dir of an infer run, or of a demo for all of its runs")
    parser.add_argument("--baseline", metavar="NAME", help="the system that the others are compared with")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--metric", action="append", default=[], metavar="NAME", help="show this metric (may be repeated)")
    parser.add_argument("--breakdown", action="store_true", help="also a table for each group of questions")
    parser.add_argument(
        "--over-seeds", action="store_true", help="NAME_s1, NAME_s2 ... as one system, with intervals over seeds and questions together"
    )
    shown.add_argument(
        "--errors",
        action="store_true",
        help="instead of metrics, the share of questions by whether all supporting passages were found and whether the answer is right",
    )
    parser.add_argument("--force", action="store_true", help="compare runs even if their questions or corpora differ")
    parser.add_argument("--format", default="terminal", choices=["terminal", "markdown", "csv", "latex"])
    parser.add_argument(
        "--wide", action="store_true", help="in the terminal: all metrics, p-values, tokens and faults, as other formats have"
    )


def run(arguments: argparse.Namespace) -> None:
    """Print the table."""
    from infer.evaluation.compare import print_comparison
    from infer.evaluation.over_seeds import print_over_seeds

    keys = {name: getattr(arguments, name) for name in ("baseline", "breakdown", "force")}
    keys |= {"metrics": arguments.metric, "table_format": arguments.format, "wide": arguments.wide}
    if arguments.over_seeds or arguments.errors:
        print_over_seeds(arguments.runs, errors=arguments.errors, **keys)
    else:
        print_comparison(arguments.runs, **keys)
