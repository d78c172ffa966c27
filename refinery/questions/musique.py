"""MuSiQue-Ans as released (`musique_ans_v1.0_*.jsonl`): twenty paragraphs per question, and a decomposition with `#1` references.

About half of the sub-questions read like `Anna Benson >> spouse`; they are kept unchanged.
"""

from refinery.contract.records import Passage, Question, SubQuestion
from refinery.questions.base import DatasetRow, distinct, reader_of


class _Paragraph(DatasetRow):
    idx: int
    title: str
    paragraph_text: str
    is_supporting: bool


class _Hop(DatasetRow):
    question: str
    answer: str
    paragraph_support_idx: int | None = None


class _Row(DatasetRow):
    id: str
    question: str
    answer: str
    answer_aliases: list[str] = []
    paragraphs: list[_Paragraph] = []
    question_decomposition: list[_Hop] = []


def _to_question(row: _Row) -> Question:
    """A question's type is its number of hops, as in `3hop`."""
    return Question(
        id=row.id,
        text=row.question.strip(),
        answers=distinct([row.answer, *row.answer_aliases]),
        passages=[Passage(id=f"{row.id}:{p.idx}", title=p.title, text=p.paragraph_text) for p in row.paragraphs] or None,
        supporting=[f"{row.id}:{p.idx}" for p in row.paragraphs if p.is_supporting] if row.paragraphs else None,
        decomposition=[_sub_question(row, hop) for hop in row.question_decomposition] or None,
        type=f"{len(row.question_decomposition)}hop" if row.question_decomposition else None,
        dataset="musique",
    )


def _sub_question(row: _Row, hop: _Hop) -> SubQuestion:
    index = hop.paragraph_support_idx if row.paragraphs else None
    return SubQuestion(text=hop.question.strip(), answer=hop.answer, supporting=None if index is None else [f"{row.id}:{index}"])


READER = reader_of(_Row, _to_question, hub_columns=["question_decomposition"], repositories=("dgslibisey/MuSiQue", "bdsaglam/musique"))
