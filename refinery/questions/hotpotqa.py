"""HotpotQA as released (`hotpot_*_v1.json`): ten titled paragraphs per question, supporting facts as (title, sentence index).

The hub's copies hold the same in nested columns: `context` is {title: [...], sentences: [[...], ...]}, or either layout as JSON text.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, Field, field_validator
from pydantic_core import from_json

from refinery.contract.records import Passage, Question
from refinery.questions.base import DatasetRow, Reader, iter_dataset, read_dataset


class HotpotRow(DatasetRow):
    """The fields of a row, which 2WikiMultihopQA shares."""

    id: str = Field(validation_alias=AliasChoices("_id", "id"))
    question: str
    answer: str
    type: str
    context: list[tuple[str, list[str]]]
    supporting_facts: list[tuple[str, int]]

    @field_validator("context", "supporting_facts", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        """(title, sentences) and (title, sentence index) pairs, whatever the layout."""
        if isinstance(value, str):
            value = from_json(value)
        if not isinstance(value, dict):
            return value
        titles, others = value.get("title"), value.get("sentences", value.get("sent_id"))
        if not isinstance(titles, list) or not isinstance(others, list) or len(titles) != len(others):
            raise ValueError(f"expected as many titles as sentences or their numbers, got {str(value)[:80]}")
        return list(zip(titles, others, strict=True))


def read(path: Path) -> list[Question]:
    """Read a release file. HotpotQA annotates no decomposition."""
    return read_dataset(path, HotpotRow, to_question)


def of_rows(path: Path, rows: Iterable[tuple[str, Any]]) -> Iterator[Question]:
    """The questions of (where, values) pairs in either layout."""
    return iter_dataset(path, HotpotRow, lambda row: [to_question(row)], rows=rows)


def to_question(row: HotpotRow) -> Question:
    """The row with its paragraphs as passages `<id>:<position>`, counted from 0."""
    return Question(
        id=row.id,
        text=row.question.strip(),
        answers=[row.answer],
        passages=[
            Passage(id=f"{row.id}:{position}", title=title, text=" ".join(sentence.strip() for sentence in sentences))
            for position, (title, sentences) in enumerate(row.context)
        ],
        supporting=[passage_id for ids in supporting_by_title(row).values() for passage_id in ids],
        type=row.type,
        dataset="hotpotqa",
    )


def supporting_by_title(row: HotpotRow) -> dict[str, list[str]]:
    """Ids of the supporting paragraphs by title, in the order of the supporting facts.

    A fact whose sentence is not in the context gets an id that no passage has, so that a check for all supporting passages fails.
    """
    sentence_in: dict[tuple[str, int], str] = {}
    for position, (title, sentences) in enumerate(row.context):
        for number in range(len(sentences)):
            sentence_in.setdefault((title, number), f"{row.id}:{position}")
    found: dict[str, dict[str, None]] = {}
    for title, number in row.supporting_facts:
        found.setdefault(title, {})[sentence_in.get((title, number), f"{row.id}:{title}:{number}")] = None
    return {title: list(ids) for title, ids in found.items()}


READER = Reader(read, of_rows, ("supporting_facts",))
