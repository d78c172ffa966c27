"""Several datasets in one recipe: a file's folder names its reader, as in `data/musique/train.jsonl`."""

from collections.abc import Iterable
from pathlib import Path

from refinery.contract.records import Question
from refinery.errors import RecordError
from refinery.questions.base import READERS
from refinery.runtime.recipes import plugins


def read(path: Path) -> Iterable[Question]:
    """Read a file with the reader that its folder names. Raises RecordError when no reader has that name."""
    readers = [reader for reader in READERS.names() if reader != "by_folder"]
    if path.parent.name not in readers:
        raise RecordError(f"{path}: its folder '{path.parent.name}' is not named after a reader. Available: {', '.join(readers)}.")
    return plugins.find_installed(READERS, path.parent.name).read(path)
