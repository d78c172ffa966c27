"""Your own questions: one `Question` per line, `{"id": ..., "text": ..., "answers": [...]}` at least."""

from collections.abc import Iterator
from pathlib import Path

from refinery.contract.records import Question, iter_records


def read(path: Path) -> Iterator[Question]:
    """The questions of a questions.jsonl, as they are asked for."""
    return iter_records(path, Question)
