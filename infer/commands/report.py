"""`refinery report TABLE`."""

import argparse
from pathlib import Path

GROUP = "Results"
HELP = "fill a paper's table from finished runs, beside the paper's numbers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("table", type=Path, metavar="TABLE", help="a YAML file of recipes/<system>/tables")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="the folder that the table's runs are under (default: runs)")
    parser.add_argument("--format", default="terminal", choices=["terminal", "markdown", "csv", "latex"])


def run(arguments: argparse.Namespace) -> None:
    """Print the table."""
    from infer.evaluation.paper_table import print_paper_table

    print_paper_table(arguments.table, runs=arguments.runs, table_format=arguments.format)
