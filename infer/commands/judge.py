"""`refinery judge RUN`."""

import argparse
from pathlib import Path

GROUP = "Results"
HELP = "let an LLM judge a run's answers, store its replies, and score the run again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="output_dir of an infer run")
    parser.add_argument("settings", nargs="+", metavar="key=value", help="the judge's endpoint: model=NAME [base_url=URL ...]")


def run(arguments: argparse.Namespace) -> None:
    """Judge the answers and print the results."""
    from rich.console import Console

    from infer.evaluation.judge import judge
    from refinery.llms.served.endpoint import EndpointConfig
    from refinery.reporting.results import results_table
    from refinery.runtime.recipe import apply_overrides, build_recipe

    config = build_recipe(apply_overrides({"max_tokens": 8}, arguments.settings, where="judge"), EndpointConfig, where="judge")
    metrics = judge(arguments.folder, config)
    table = results_table(metrics["results"], title=f"{arguments.folder}, judged by {config.model}")
    Console(width=170).print(table)
