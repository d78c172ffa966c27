"""`refinery report TABLE`."""

import argparse
from pathlib import Path

GROUP = "Results"
HELP = "fill a paper's table from finished runs, next to the paper's numbers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("table", type=Path, metavar="TABLE", help="a YAML file from recipes/<system>/tables")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="the folder that contains the table's runs (default: runs)")
    parser.add_argument("--format", default="terminal", choices=["terminal", "markdown", "csv", "latex"])


def run(arguments: argparse.Namespace) -> None:
    """Print the table."""
    from infer.evaluation.tables.paper import print_paper_table

    print_paper_table(arguments.table, runs=arguments.runs, table_format=arguments.format)
