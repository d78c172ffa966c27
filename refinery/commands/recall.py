"""`refinery recall RECIPE... --questions [READER=]FILE...`."""

import argparse
import asyncio
import json
from pathlib import Path

GROUP = "Retrieval"
HELP = "compare retrievers by how many of the questions' supporting passages they find"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("recipes", type=Path, nargs="+", metavar="RECIPE", help="retrievers' recipes, or folders of indexes")
    parser.add_argument("--questions", nargs="+", required=True, metavar="[READER=]FILE", help="questions, such as musique=dev.jsonl")
    parser.add_argument("--gold", type=Path, metavar="FILE", help="JSON Lines of id and gold (passage ids for each supporting paragraph)")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="overrides of every recipe, such as passages=FILE")
    parser.add_argument("--k", type=int, nargs="+", default=[3, 5, 10, 20], help="hits to measure recall at (default: 3 5 10 20)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a Markdown table")


def run(arguments: argparse.Namespace) -> None:
    """Search every question with every retriever, and print the table."""
    from refinery.questions.base import read_named_questions
    from refinery.recall import judged_questions, measure
    from refinery.retrievers.search.build import build_retriever, load_retriever_config
    from refinery.supporting import check_supporting
    from refinery.text import printable

    judged = judged_questions(read_named_questions(arguments.questions), arguments.gold)
    measured = {}
    for path in arguments.recipes:
        config = load_retriever_config(path, arguments.set)
        if not arguments.gold:
            check_supporting((one.question for one in judged), config)
        retriever = build_retriever(config)
        measured[path.stem] = asyncio.run(measure(retriever, judged, arguments.k))
    if arguments.json:
        print(json.dumps({name: {"recall": recall, "queries_per_second": speed} for name, (recall, speed) in measured.items()}))
    else:
        print(printable("\n".join(_table(measured, arguments.k))))


def _table(measured: dict[str, tuple[dict[str, dict[int, float]], float]], ks: list[int]) -> list[str]:
    """A Markdown table with a line for each dataset and retriever."""
    from refinery.reporting.markdown import table

    rows = [
        [dataset, name, *(f"{100 * recall[dataset][k]:.1f}" for k in ks), f"{speed:,.0f}"]
        for dataset in next(iter(measured.values()))[0]
        for name, (recall, speed) in measured.items()
    ]
    return table(["dataset", "retriever", *(f"recall@{k}" for k in ks), "queries/s"], rows)
