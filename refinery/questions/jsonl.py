"""Your own questions: one `Question` per line, `{"id": ..., "text": ..., "answers": [...]}` at least."""

from pathlib import Path

from refinery.records import Question, read_records


def read(path: Path) -> list[Question]:
    """Read a questions.jsonl."""
    return read_records(path, Question)
