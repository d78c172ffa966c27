"""LIMA as released (`train.jsonl`, `test.jsonl`): dialogues as lists of turns, the user's first.

The user's last turn is the question, the turns before it are its `history`, and the reply is its answer, which the test set lacks.
"""

from pydantic import Field

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, reader_of


class _Row(DatasetRow):
    conversations: list[str] = Field(min_length=1)
    source: str | None = None


def _to_question(row: _Row) -> Question:
    """A question's type is where it was written: `stackexchange`, `wikihow`, `authors` and so on."""
    asked = len(row.conversations) - 1 & ~1  # turns alternate, so the user's have even positions
    return Question(
        id="",
        text=row.conversations[asked].strip(),
        answers=row.conversations[asked + 1 :],
        history=row.conversations[:asked] or None,
        type=row.source,
        dataset="lima",
    )


READER = reader_of(_Row, _to_question, hub_columns=["conversations"], repositories=("GAIR/lima",))
