"""`refinery index PASSAGES --output DIR`."""

import argparse
from pathlib import Path

from refinery.runtime.shipped import shipped

GROUP = "Retrieval"
HELP = "index passages on disk (from JSON Lines, Parquet, DPR's TSV or a folder of documents) for a retriever"
BM25_RECIPE = shipped("recipes/retrieval/bm25.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("passages", type=Path, metavar="PASSAGES", help=".jsonl, .parquet, DPR's .tsv, or a folder of documents")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the index, for retriever.index in a recipe")
    parser.add_argument("--retriever", type=Path, default=BM25_RECIPE, metavar="RECIPE", help="a retriever's recipe (default: BM25)")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="overrides of that recipe; use dots for nested keys")
    parser.add_argument("--without", nargs="+", default=[], metavar="[READER=]FILE", help="leave out passages with one of these questions")
    parser.add_argument("--resume", action="store_true", help="continue a build that was stopped")


def run(arguments: argparse.Namespace) -> None:
    """Build the index and print what it holds."""
    from refinery.indexing import build_index
    from refinery.questions.base import read_named_questions
    from refinery.retrievers.search.build import load_retriever_config

    config = load_retriever_config(arguments.retriever, arguments.set)
    asked = [question.text for question in read_named_questions(arguments.without)]
    manifest = build_index(arguments.passages, arguments.output, config, resume=arguments.resume, questions=asked)
    dropped = f", {manifest.num_dropped:,} left out" if manifest.num_dropped else ""
    print(f"{arguments.output}: {manifest.num_passages:,} passages for retriever '{manifest.name}'{dropped}.")
