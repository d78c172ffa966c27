"""KQA Pro as released (`train.json`, `val.json`, `test.json`), as multiple choice: ten choices per question, no gold in the test set.

A row without choices keeps its answer as text. `kqapro_open` reads every row this way, as the re-thinking paper evaluates.
"""

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, reader_of, right_letter


class KqaProRow(DatasetRow):
    """The fields of a row. The release has no ids."""

    question: str
    choices: list[str] | None = None
    answer: str | None = None


def open_question(row: KqaProRow) -> Question:
    """The row without its choices."""
    return Question(id="", text=row.question.strip(), answers=[] if row.answer is None else [row.answer], dataset="kqapro")


def _to_question(row: KqaProRow) -> Question:
    if row.choices is None:
        return open_question(row)
    answers = [] if row.answer is None else right_letter(row.choices, row.answer, field="answer")
    return open_question(row).model_copy(update={"choices": row.choices, "answers": answers})


READER = reader_of(KqaProRow, _to_question, repositories=("drt/kqa_pro",))
