"""`refinery index PASSAGES --output DIR`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from refinery.runtime.shipped import shipped

if TYPE_CHECKING:
    from refinery.indexing import Update

GROUP = "Retrieval"
HELP = "index passages on disk (from JSON Lines, Parquet, DPR's TSV or a folder of documents) for a retriever"
BM25_RECIPE = shipped("recipes/retrieval/bm25.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "passages", type=Path, metavar="PASSAGES", help=".jsonl, .parquet, DPR's .tsv, or a folder of documents or of such files"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the index, for retriever.index in a recipe")
    parser.add_argument("--retriever", type=Path, metavar="RECIPE", help="a retriever's recipe (default: BM25, or that of the index)")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="overrides of that recipe; use dots for nested keys")
    parser.add_argument("--without", nargs="+", default=[], metavar="[READER=]FILE", help="leave out passages with one of these questions")
    parser.add_argument("--add", nargs="+", default=[], metavar="[READER=]FILE", help="also index these questions' own passages")
    parser.add_argument("--resume", action="store_true", help="continue a build that was stopped")
    parser.add_argument("--update", action="store_true", help="bring an existing index up to date with the passages, or build it")


def run(arguments: argparse.Namespace) -> None:
    """Build or update the index, and print what it holds."""
    from refinery.indexing import build_index, update_index
    from refinery.questions.base import read_named_questions
    from refinery.retrievers.search.build import load_retriever_config

    asked = [question.text for question in read_named_questions(arguments.without)]
    own = {passage.id: passage for question in read_named_questions(arguments.add) for passage in question.passages or []}
    added = list(own.values())
    if arguments.update:
        chosen = arguments.retriever or (BM25_RECIPE if arguments.set else None)
        config = load_retriever_config(chosen, arguments.set) if chosen else None
        updated = update_index(arguments.passages, arguments.output, config, questions=asked, added=added)
        manifest, done = updated.manifest, _done(updated)
    else:
        config = load_retriever_config(arguments.retriever or BM25_RECIPE, arguments.set)
        manifest, done = (
            build_index(arguments.passages, arguments.output, config, resume=arguments.resume, questions=asked, added=added),
            "",
        )
    dropped = f", {manifest.num_dropped:,} left out" if manifest.num_dropped else ""
    print(f"{arguments.output}: {manifest.num_passages:,} passages for retriever '{manifest.name}'{dropped}.{done}")


def _done(updated: "Update") -> str:
    """What an update had to do."""
    if not updated.changed:
        return " It was up to date."
    if updated.num_reused is None:
        return " It was built from all of them."
    return f" {updated.num_reused:,} were taken from the index as it was, {updated.manifest.num_passages - updated.num_reused:,} encoded."
