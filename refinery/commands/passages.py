"""`refinery passages FOLDER --output FILE.jsonl`."""

import argparse
from pathlib import Path

GROUP = "Retrieval"
HELP = "cut a folder of documents (text, Markdown, HTML, PDF, Word, ...) into passages, or bring passages up to date with it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the documents; hidden files and folders are left out")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.jsonl", help="the passages; FILE.manifest.json is beside them")
    parser.add_argument("--words", type=int, metavar="N", help="maximum words of a passage (default: those of an existing file, or 100)")
    parser.add_argument("--overlap", type=int, metavar="N", help="words that a passage repeats of the one before (default: 0)")
    parser.add_argument("--rewrite", action="store_true", help="cut every document again, also with other settings than before")
    parser.add_argument("--skip-unreadable", action="store_true", help="leave out documents that cannot be read, and name them")
    parser.add_argument("--follow-links", action="store_true", help="read also what links lead to that lies outside of FOLDER or is hidden")


def run(arguments: argparse.Namespace) -> None:
    """Write the passages, and print how many documents were added, changed, removed and left as they were."""
    from refinery.passages.passages_file import stored_settings, write_passages
    from refinery.passages.settings import checked_settings
    from refinery.text import printable

    before = stored_settings(arguments.output)
    words = before.words_per_passage if arguments.words is None else arguments.words
    overlap = before.overlap_words if arguments.overlap is None else arguments.overlap
    written = write_passages(
        arguments.folder,
        arguments.output,
        checked_settings(words, overlap),
        rewrite=arguments.rewrite,
        skip_unreadable=arguments.skip_unreadable,
        follow_links=arguments.follow_links,
    )
    kinds = ("added", "changed", "removed", "unchanged", *(["unreadable"] if written.unreadable else []))
    counts = ", ".join(f"{len(getattr(written, kind))} {kind}" for kind in kinds)
    print(printable(f"{arguments.output}: {written.num_passages:,} passages of {len(written.documents):,} documents ({written.settings})."))
    print(f"Documents: {counts}.")
