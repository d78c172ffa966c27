"""AQUA-RAT as released (`train.json`, `dev.json`, `test.json`, all JSON Lines): algebra with five options written `A)5`, without ids."""

from pathlib import Path
from string import ascii_uppercase

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, read_dataset, right_letter


class _Row(DatasetRow):
    question: str
    options: list[str]
    correct: str


def read(path: Path) -> list[Question]:
    """Read a release file. Choices lose their letters."""
    return read_dataset(path, _Row, _to_question)


def _to_question(row: _Row) -> Question:
    letters = list(ascii_uppercase[: len(row.options)])
    return Question(
        id="",
        text=row.question.strip(),
        choices=[_text(option, letter) for option, letter in zip(row.options, letters, strict=True)],
        answers=right_letter(letters, row.correct, field="correct"),
        dataset="aqua_rat",
    )


def _text(option: str, letter: str) -> str:
    if not option.startswith(f"{letter})"):
        raise ValueError(f"field 'options': {option!r} does not start with '{letter})'.")
    return option.removeprefix(f"{letter})").strip()
