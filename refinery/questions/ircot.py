"""IRCoT's layout (`dev.jsonl`, `test_subsampled.jsonl`), in which RQ-RAG and others read HotpotQA, 2WikiMultihopQA and MuSiQue."""

from refinery.contract.records import Passage, Question
from refinery.questions.base import DatasetRow, distinct, reader_of


class _Paragraph(DatasetRow):
    title: str
    paragraph_text: str
    is_supporting: bool


class _Answer(DatasetRow):
    spans: list[str]


class _Row(DatasetRow):
    question_id: str
    question_text: str
    contexts: list[_Paragraph]
    answers_objects: list[_Answer]
    dataset: str = "ircot"
    type: str | None = None


def _to_question(row: _Row) -> Question:
    """Every span is an answer, and passage ids are `<id>:<position>`, counted from 0."""
    ids = [f"{row.question_id}:{position}" for position in range(len(row.contexts))]
    paragraphs = list(zip(ids, row.contexts, strict=True))
    return Question(
        id=row.question_id,
        text=row.question_text.strip(),
        answers=distinct(span for answer in row.answers_objects for span in answer.spans),
        passages=[Passage(id=i, title=paragraph.title, text=paragraph.paragraph_text) for i, paragraph in paragraphs] or None,
        supporting=[i for i, paragraph in paragraphs if paragraph.is_supporting] or None,
        type=row.type,
        dataset=row.dataset,
    )


READER = reader_of(_Row, _to_question)
