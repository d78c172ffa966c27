"""AQUA-RAT as released (`train.json`, `dev.json`, `test.json`, all JSON Lines): algebra with five options written `A)5`, without ids."""

from string import ascii_uppercase

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, reader_of, right_letter


class _Row(DatasetRow):
    question: str
    options: list[str]
    correct: str


def _to_question(row: _Row) -> Question:
    """Choices lose their letters."""
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


READER = reader_of(_Row, _to_question, repositories=("deepmind/aqua_rat",))
