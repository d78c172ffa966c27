"""`refinery index PASSAGES --output DIR`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refinery.runtime.forecast import Expected, Forecast
from refinery.runtime.recipes.shipped_files import shipped

if TYPE_CHECKING:
    from refinery.indexes.update import Update
    from refinery.project.ray_runner import Place
    from refinery.retrievers.base import RetrieverConfig
    from refinery.retrievers.index.manifest import Manifest

GROUP = "Retrieval"
HELP = "index passages on disk (from JSON Lines, Parquet, DPR's TSV or a folder of documents) for a retriever"
BM25_RECIPE = shipped("recipes/retrieval/bm25.yaml")

_DISK = (1.7, 3.5)  # bytes of a BM25 index, while it is built, per byte of the source
_UNPACKED = 2.8  # times the bytes of a packed source (DPR's is 4.7 GB, and 13 GB unpacked)
_DIMENSIONS = (384, 1024)  # of dense vectors, in 32 bits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_inputs(parser)
    parser.add_argument("--resume", action="store_true", help="continue a build that was stopped, or join shards")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--update", action="store_true", help="bring an existing index up to date with the passages, or build it")
    how.add_argument("--shard", type=_shard, metavar="i/n", help="build only part i (from 0) of n (bm25, dense); --resume joins them")


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that say what is indexed, how, and where."""
    parser.add_argument(
        "passages", type=Path, metavar="PASSAGES", help=".jsonl, .parquet, DPR's .tsv, or a folder of documents or of such files"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the index, for retriever.index in a recipe")
    parser.add_argument("--retriever", type=Path, metavar="RECIPE", help="a retriever's recipe (default: BM25, or that of the index)")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="overrides of that recipe; use dots for nested keys")
    parser.add_argument("--without", nargs="+", default=[], metavar="[READER=]FILE", help="leave out passages with one of these questions")
    parser.add_argument("--add", nargs="+", default=[], metavar="[READER=]FILE", help="also index these questions' own passages")


def words_of(arguments: argparse.Namespace) -> list[str]:
    """The words of a command with these inputs, for another process."""
    lists = {"--set": arguments.set, "--without": arguments.without, "--add": arguments.add}
    named = ["--retriever", str(arguments.retriever)] if arguments.retriever else []
    given = [word for flag, values in lists.items() if values for word in (flag, *values)]
    return ["index", str(arguments.passages), "--output", str(arguments.output), *named, *given]


def begin(arguments: argparse.Namespace) -> None:
    """Write what shards index, which also checks all inputs."""
    from refinery.indexes.build import begin_shards

    begin_shards(arguments.passages, arguments.output, _config(arguments), **_of_questions(arguments))


def run(arguments: argparse.Namespace) -> None:
    """Build or update the index or one shard of it, and print what it holds."""
    from refinery.indexes.build import build_index, build_shard
    from refinery.indexes.update import update_index

    asked, folder = _of_questions(arguments), arguments.output
    if arguments.update:
        config = _config(arguments) if arguments.retriever or arguments.set else None
        updated = update_index(arguments.passages, folder, config, **asked)
        print(_held(updated.manifest, folder) + _done(updated))
    elif arguments.shard:
        number, of = arguments.shard
        build_shard(arguments.passages, folder, _config(arguments), number, of, **asked)
        print(f"{folder}: shard {number}/{of} is built. When all are, join them with --resume.")
    else:
        print(_held(build_index(arguments.passages, folder, _config(arguments), resume=arguments.resume, **asked), folder))


def forecast(words: Sequence[str], expected: Expected) -> Forecast:
    """The disk of an index whose passages may not be downloaded yet."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    arguments = parser.parse_args(list(words))
    rows, size = expected.rows_of(arguments.passages), expected.bytes_of(arguments.passages)
    if rows is None or size is None:
        return Forecast(rows, disk_bytes=None)
    size = size * _UNPACKED if arguments.passages.suffix == ".gz" else size
    if arguments.retriever and "dense" in arguments.retriever.name:
        low, high = (size * 1.1 + rows * 4 * dimensions for dimensions in _DIMENSIONS)
        return Forecast(rows, disk_bytes=(low, high))
    return Forecast(rows, disk_bytes=(size * _DISK[0], size * _DISK[1]))


def divided(words: Sequence[str]) -> "Place":
    """Where `refinery run --on ray` builds an index. Raises RecipeError for a retriever's recipe that cannot be read."""
    from refinery.indexes.build import has_shards, is_built
    from refinery.project.ray_runner import Place

    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    arguments = parser.parse_args(list(words))
    if arguments.shard:
        return Place(here="--shard is one shard already")
    if is_built(arguments.output):
        return Place(here="one process updates an index that is there")
    config = _config(arguments)
    return Place(tuple(words_of(arguments))) if has_shards(config) else Place(here=f"one process builds an index for {config.name}")


def _shard(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and int(number) < int(of)):
        raise argparse.ArgumentTypeError(f"'{text}' is not a shard i/n, which counts from 0: the last of 4 is 3/4")
    return int(number), int(of)


def _config(arguments: argparse.Namespace) -> "RetrieverConfig":
    from refinery.retrievers.search.build import load_retriever_config

    return load_retriever_config(arguments.retriever or BM25_RECIPE, arguments.set)


def _of_questions(arguments: argparse.Namespace) -> dict[str, Any]:
    """The texts of the questions whose passages are left out, and the passages that are added."""
    from refinery.questions.base import read_named_questions

    own = {passage.id: passage for question in read_named_questions(arguments.add) for passage in question.passages or []}
    return {"questions": [question.text for question in read_named_questions(arguments.without)], "added": list(own.values())}


def _held(manifest: "Manifest", folder: Path) -> str:
    dropped = f", {manifest.num_dropped:,} left out" if manifest.num_dropped else ""
    return f"{folder}: {manifest.num_passages:,} passages for retriever '{manifest.name}'{dropped}."


def _done(updated: "Update") -> str:
    """What an update had to do."""
    if not updated.changed:
        return " It was up to date."
    if updated.num_reused is None:
        return " It was built from all of them."
    return f" {updated.num_reused:,} were taken from the index as it was, {updated.manifest.num_passages - updated.num_reused:,} encoded."
