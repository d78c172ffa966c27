"""`refinery judge RUN`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from refinery.runtime.forecast import Expected, Forecast

if TYPE_CHECKING:
    from refinery.llms.served.endpoint import EndpointConfig

GROUP = "Results"
HELP = "let an LLM judge a run's answers, store its replies, and score the run again"
READS_RUNS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="output_dir of an infer run")
    parser.add_argument("settings", nargs="+", metavar="key=value", help="the judge's endpoint: model=NAME [base_url=URL ...]")


def run(arguments: argparse.Namespace) -> None:
    """Judge the answers and print the results."""
    from infer.evaluation.judge import judge
    from refinery.reporting.results import print_results

    config = _judge(arguments.settings)
    metrics = judge(arguments.folder, config)
    print_results(metrics["results"], title=f"{arguments.folder}, judged by {config.model}")


def forecast(words: Sequence[str], expected: Expected) -> Forecast:
    """One call per answer of a run that may not be there yet."""
    from refinery.contract.trace import PREDICTIONS_FILE
    from refinery.llms.served.paid.prices import probable_dollars

    rows = expected.rows_of(Path(words[0]) / PREDICTIONS_FILE)
    if rows is None:
        return Forecast(dollars=None)
    config, calls = _judge(words[1:]), (0.0, float(rows))
    return Forecast(calls=calls, dollars=probable_dollars(config, calls, passages=0, max_tokens=config.max_tokens))


def _judge(settings: Sequence[str]) -> "EndpointConfig":
    from refinery.llms.served.endpoint import EndpointConfig
    from refinery.runtime.recipe import apply_overrides, build_recipe

    return build_recipe(apply_overrides({"max_tokens": 8}, settings, where="judge"), EndpointConfig, where="judge")
