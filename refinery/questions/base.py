"""Read questions through a reader found by name."""

from collections.abc import Sequence
from pathlib import Path

from refinery import plugins
from refinery.errors import RecordError
from refinery.records import Question


def read_questions(paths: Sequence[Path], *, reader: str = "jsonl", limit: int | None = None) -> list[Question]:
    """Every question of `paths`; ids must be unique across them. Raises RecordError naming file and line."""
    read = plugins.load("refinery.questions", reader).read
    questions = [question for path in paths for question in read(path)][:limit]
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise RecordError(f"{paths[0]}: question id '{question.id}' is used twice. Ids must be unique.")
        seen.add(question.id)
    return questions
