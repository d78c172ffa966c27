"""HotpotQA as released (`hotpot_*_v1.json`): ten titled paragraphs per question, supporting facts as (title, sentence index).

The hub's copies hold the same in nested columns: `context` is {title: [...], sentences: [[...], ...]}, or either layout as JSON text.
"""

from typing import Any

from pydantic import AliasChoices, Field, field_validator
from pydantic_core import from_json

from refinery.contract.records import Passage, Question
from refinery.questions.base import DatasetRow, reader_of

# The hub's columns beside the titles of paragraphs and of facts.
_BESIDE_TITLES = ("sentences", "content", "sent_id")


class HotpotRow(DatasetRow):
    """The fields of a row, which 2WikiMultihopQA shares."""

    id: str = Field(validation_alias=AliasChoices("_id", "id"))
    question: str
    answer: str = ""  # the test sets have none
    type: str | None = None
    context: list[tuple[str, list[str]]] = []
    supporting_facts: list[tuple[str, int]] = []

    @field_validator("context", "supporting_facts", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        """(title, sentences) and (title, sentence index) pairs, whatever the layout."""
        if isinstance(value, str):
            value = from_json(value)
        if not isinstance(value, dict):
            return value
        titles, others = value.get("title"), next((value[name] for name in _BESIDE_TITLES if name in value), None)
        if not isinstance(titles, list) or not isinstance(others, list) or len(titles) != len(others):
            raise ValueError(f"expected as many titles as sentences or their numbers, got {str(value)[:80]}")
        return list(zip(titles, others, strict=True))


def to_question(row: HotpotRow) -> Question:
    """The row with its paragraphs as passages `<id>:<position>`, counted from 0. A row may lack them. There is no decomposition."""
    return Question(
        id=row.id,
        text=row.question.strip(),
        answers=[row.answer] if row.answer else [],
        passages=[
            Passage(id=f"{row.id}:{position}", title=title, text=" ".join(sentence.strip() for sentence in sentences))
            for position, (title, sentences) in enumerate(row.context)
        ]
        or None,
        supporting=[passage_id for ids in supporting_by_title(row).values() for passage_id in ids] if row.context else None,
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


READER = reader_of(HotpotRow, to_question, hub_columns=["supporting_facts"], repositories=("hotpotqa/hotpot_qa",))
