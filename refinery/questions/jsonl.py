"""Your own questions: one `Question` per line, with at least `{"id": ..., "text": ..., "answers": [...]}`."""

from collections.abc import Iterator
from pathlib import Path

from refinery.contract.records import Question, iter_records


def read(path: Path) -> Iterator[Question]:
    """The questions of a questions.jsonl, read lazily."""
    return iter_records(path, Question)
