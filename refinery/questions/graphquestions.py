"""GraphQuestions as released (`graphquestions.testing.json`): questions over Freebase, each with several paraphrases."""

from pydantic import AliasChoices, Field

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, distinct, reader_of


class _Row(DatasetRow, coerce_numbers_to_str=True):
    qid: str
    question: str
    answer: list[str]
    function: str | None = Field(default=None, validation_alias=AliasChoices("function", "function_category"))


def _to_question(row: _Row) -> Question:
    """The function of the query becomes the question's type: none, count, superlative or comparative."""
    return Question(id=row.qid, text=row.question.strip(), answers=distinct(row.answer), type=row.function, dataset="graphquestions")


READER = reader_of(_Row, _to_question, repositories=("drt/graph_questions",))
