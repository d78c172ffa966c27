"""ARC in AI2's schema (`ARC-Challenge-Test.jsonl`) and in the hub's: three to five choices, labeled with letters or numbers."""

from pathlib import Path

from pydantic import AliasChoices, Field

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, read_dataset, right_letter


class _Choice(DatasetRow):
    text: str
    label: str


class Stem(DatasetRow):
    """AI2's question, with its choices inside."""

    stem: str
    choices: list[_Choice]


class _Choices(DatasetRow):
    text: list[str]
    label: list[str]


class ChoiceRow(DatasetRow):
    """The fields of a row. OpenBookQA has the same fields; its copy on the hub calls the question `question_stem`."""

    id: str
    question: Stem | str = Field(validation_alias=AliasChoices("question", "question_stem"))
    choices: _Choices | None = None
    answerKey: str


def read(path: Path) -> list[Question]:
    """Read a release file. The answer is always a letter, even when the labels are numbers."""
    return read_dataset(path, ChoiceRow, lambda row: to_question(row, "arc"))


def to_question(row: ChoiceRow, dataset: str) -> Question:
    """The row with the texts of its choices and the letter of the right one. Raises ValueError when the answer key is not a label."""
    if isinstance(row.question, Stem):
        text, choices = row.question.stem, [(choice.text, choice.label) for choice in row.question.choices]
    elif row.choices and len(row.choices.text) == len(row.choices.label):
        text, choices = row.question, list(zip(row.choices.text, row.choices.label, strict=True))
    else:
        raise ValueError("field 'choices': each text needs a label.")
    return Question(
        id=row.id,
        text=text.strip(),
        choices=[choice for choice, _ in choices],
        answers=right_letter([label for _, label in choices], row.answerKey, field="answerKey"),
        dataset=dataset,
    )
