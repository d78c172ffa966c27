"""`refinery index PASSAGES --output DIR`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from refinery.runtime.forecast import Expected, Forecast
from refinery.runtime.shipped import shipped

if TYPE_CHECKING:
    from refinery.indexing import Update

GROUP = "Retrieval"
HELP = "index passages on disk (from JSON Lines, Parquet, DPR's TSV or a folder of documents) for a retriever"
BM25_RECIPE = shipped("recipes/retrieval/bm25.yaml")

# Of BM25: bytes on disk per byte of the source while it is built, and passages indexed per second, on one core and on many.
_DISK, _PASSAGES_A_SECOND = (1.7, 3.5), (2e3, 6e4)
_UNPACKED = 2.8  # times the bytes of a packed source (DPR's is 4.7 GB, and 13 GB unpacked)
# Of dense vectors in 32 bits: the dimensions and the operations per passage of an encoder such as bge-base, on a GPU.
_DIMENSIONS, _OPERATIONS, _SPEED = (384, 1024), (1e10, 8e10), (2e13, 3e14)


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


def forecast(words: Sequence[str], expected: Expected) -> Forecast:
    """The time and the disk of an index whose passages may not be downloaded yet."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    arguments = parser.parse_args(list(words))
    rows, size = expected.rows_of(arguments.passages), expected.bytes_of(arguments.passages)
    if rows is None or size is None:
        return Forecast(rows, seconds=None, disk_bytes=None)
    size = size * _UNPACKED if arguments.passages.suffix == ".gz" else size
    if arguments.retriever and "dense" in arguments.retriever.name:
        seconds = rows * _OPERATIONS[0] / _SPEED[1], rows * _OPERATIONS[1] / _SPEED[0]
        low, high = (size * 1.1 + rows * 4 * dimensions for dimensions in _DIMENSIONS)
        return Forecast(rows, seconds=seconds, gpu_seconds=seconds, disk_bytes=(low, high))
    seconds = rows / _PASSAGES_A_SECOND[1], rows / _PASSAGES_A_SECOND[0]
    return Forecast(rows, seconds=seconds, disk_bytes=(size * _DISK[0], size * _DISK[1]))


def _done(updated: "Update") -> str:
    """What an update had to do."""
    if not updated.changed:
        return " It was up to date."
    if updated.num_reused is None:
        return " It was built from all of them."
    return f" {updated.num_reused:,} were taken from the index as it was, {updated.manifest.num_passages - updated.num_reused:,} encoded."
