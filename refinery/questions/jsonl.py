"""Your own questions: one `Question` per line, with at least `{"id": ..., "text": ..., "answers": [...]}`, or per row of a `.parquet`.

A `.gz` file is decompressed as it is read.
"""

from collections.abc import Iterator
from pathlib import Path

from refinery.contract.records import Question, iter_records


def read(path: Path) -> Iterator[Question]:
    """The questions of a file, read lazily."""
    return iter_records(path, Question)
