"""ASQA as released (`ASQA.json`, all splits in one file), and as QA-Feedback repacks it (a list, without the readings).

`disambiguations` are the readings with their short answers, `answers` the long answers. Passages are what the annotators were
shown or looked up. The release does not say that they suffice, so no passage is marked as supporting.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, Field, RootModel

from refinery.contract.records import Disambiguation, Passage, Question
from refinery.questions.base import DatasetRow, Reader, iter_dataset, load_json, numbered, parse_row

_NO_CONTEXT = "No context provided"


class _Release(RootModel[dict[str, dict[str, dict[str, Any]]]]):
    """Rows by split and id."""


class _Pair(DatasetRow):
    question: str
    short_answers: list[str]
    context: str
    wikipage: str | None = None


class _Knowledge(DatasetRow):
    content: str | None = None
    wikipage: str | None = None


class _Annotation(DatasetRow):
    long_answer: str
    knowledge: list[_Knowledge]


class _Row(DatasetRow):
    id: str = Field(validation_alias=AliasChoices("id", "sample_id"))  # `sample_id` on the hub
    split: str = ""
    ambiguous_question: str
    qa_pairs: list[_Pair]
    annotations: list[_Annotation]


class _FeedbackRow(DatasetRow):
    question: str
    answer: list[str]
    passages: list[_Knowledge]


def read(path: Path) -> Iterator[Question]:
    """Read a file in either layout."""
    release = load_json(path)
    if isinstance(release, list):
        return iter_dataset(path, _FeedbackRow, _feedback_question, rows=numbered(path, release))
    return iter_dataset(path, _Row, _to_question, rows=_rows(path, release))


def of_rows(path: Path, rows: Iterable[tuple[str, Any]]) -> Iterator[Question]:
    """The questions of (where, values) pairs in the release's columns, with the id among them."""
    return iter_dataset(path, _Row, _to_question, rows=rows)


def _rows(path: Path, release: Any) -> Iterator[tuple[str, Any]]:
    for split, rows in parse_row(release, _Release, where=str(path)).root.items():
        for row_id, row in rows.items():
            yield f"{path}: {split} {row_id}", {**row, "id": row_id, "split": split}


def _to_question(row: _Row) -> list[Question]:
    shown = [_Knowledge(content=pair.context, wikipage=pair.wikipage) for pair in row.qa_pairs]
    found = [knowledge for annotation in row.annotations for knowledge in annotation.knowledge]
    return [
        Question(
            id=row.id,
            text=row.ambiguous_question.strip(),
            answers=[annotation.long_answer.strip() for annotation in row.annotations],
            disambiguations=[Disambiguation(text=pair.question.strip(), answers=pair.short_answers) for pair in row.qa_pairs],
            passages=_passages(row.id, [*shown, *found]),
            dataset="asqa",
            split=row.split,
        )
    ]


def _feedback_question(row: _FeedbackRow) -> list[Question]:
    return [Question(id="", text=row.question.strip(), answers=row.answer, passages=_passages(row.question, row.passages), dataset="asqa")]


def _passages(question: str, knowledge: Iterable[_Knowledge]) -> list[Passage] | None:
    """Each distinct text once, as passage `<question>:<position>`, counted from 0."""
    titles: dict[str, str] = {}
    for item in knowledge:
        if item.content and item.content != _NO_CONTEXT:
            titles.setdefault(item.content, item.wikipage or "")
    return [Passage(id=f"{question}:{number}", title=title, text=text) for number, (text, title) in enumerate(titles.items())] or None


READER = Reader(read, of_rows, ("qa_pairs",), ("din0s/asqa",))
