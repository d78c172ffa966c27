"""ARC in AI2's schema (`ARC-Challenge-Test.jsonl`) and in the hub's: three to five choices, labeled with letters or numbers."""

from pydantic import AliasChoices, Field

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, reader_of, right_letter


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


def to_question(row: ChoiceRow, dataset: str) -> Question:
    """The row with its choices and the right one's letter, even where labels are numbers. Raises ValueError when the key is not a label."""
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


READER = reader_of(ChoiceRow, lambda row: to_question(row, "arc"), repositories=("allenai/ai2_arc",))
