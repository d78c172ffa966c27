"""CANARD as released (`train.json`, `dev.json`, `test.json`): QuAC's dialogues, each question with its self-contained rewrite.

A row's `History` starts with the titles of the article and the section; they are not part of the dialogue, so they are left out. The
reply to a question is in the history of the dialogue's next row, so the last question of a dialogue has no answer. The rewrite becomes
the question's only reading (`disambiguations`).
"""

from pathlib import Path

from pydantic import Field

from refinery.contract.records import Disambiguation, Question
from refinery.questions.base import DatasetRow, read_dataset

_NUM_TITLES = 2


class _Row(DatasetRow):
    QuAC_dialog_id: str
    Question_no: int
    History: list[str] = Field(min_length=_NUM_TITLES)
    Question: str
    Rewrite: str


def read(path: Path) -> list[Question]:
    """Read a release file. Ids are QuAC's, which count turns from 0."""
    replies: dict[str, str] = {}
    questions = read_dataset(path, _Row, lambda row: _to_question(row, replies))
    return [question.model_copy(update={"answers": [replies[question.id]] if question.id in replies else []}) for question in questions]


def _to_question(row: _Row, replies: dict[str, str]) -> Question:
    """The row as a question. The reply to the question before it is added to `replies`."""
    number, history = row.Question_no - 1, row.History[_NUM_TITLES:]
    if len(history) != 2 * number:
        raise ValueError(f"field 'History': {len(history)} turns before question {row.Question_no}, expected {2 * number}.")
    if history:
        replies[f"{row.QuAC_dialog_id}_q#{number - 1}"] = history[-1]
    return Question(
        id=f"{row.QuAC_dialog_id}_q#{number}",
        text=row.Question.strip(),
        history=history or None,
        disambiguations=[Disambiguation(text=row.Rewrite.strip())],
        dataset="canard",
    )
