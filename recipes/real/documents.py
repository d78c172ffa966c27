"""Write some of the study's passages as documents, in turn Markdown and text, evenly spread over the corpus.

python recipes/real/documents.py --count 24 --output runs/real/project_documents
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from refinery.contract.records import Passage, read_records
from refinery.runtime.run.command import guarded

PASSAGES = Path(__file__).parent / "data" / "passages.jsonl"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python recipes/real/documents.py", description="Write passages as documents.")
    parser.add_argument("--count", type=int, required=True, help="number of documents")
    parser.add_argument("--output", type=Path, required=True, help="their folder")
    arguments = parser.parse_args(argv)
    return guarded(lambda: write_documents(arguments.output, arguments.count), traceback=False)


def write_documents(folder: Path, count: int) -> None:
    """Write the documents, each named after its passage's title and id."""
    folder.mkdir(parents=True, exist_ok=True)
    passages = read_records(PASSAGES, Passage)
    for number, passage in enumerate(passages[:: len(passages) // count][:count]):
        suffix, head = (".md", f"# {passage.title}\n\n") if number % 2 else (".txt", "")
        name = "".join(letter if letter.isalnum() else "_" for letter in passage.title)[:60]
        (folder / f"{name}_{passage.id}{suffix}").write_text(f"{head}{passage.text}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
