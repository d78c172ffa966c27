"""HotpotQA as released (`hotpot_*_v1.json`): ten titled paragraphs a question, supporting facts as (title, sentence index)."""

from pathlib import Path

from pydantic import Field

from refinery.questions.base import DatasetRow, read_dataset
from refinery.records import Passage, Question


class HotpotRow(DatasetRow):
    """The fields of a row; 2WikiMultihopQA has them too."""

    id: str = Field(alias="_id")
    question: str
    answer: str
    type: str
    context: list[tuple[str, list[str]]]
    supporting_facts: list[tuple[str, int]]


def read(path: Path) -> list[Question]:
    """Read a release file. HotpotQA annotates no decomposition."""
    return read_dataset(path, HotpotRow, to_question)


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

    A fact whose sentence is not in the context gets an id that no passage has: whoever needs all support then misses it.
    """
    sentence_in: dict[tuple[str, int], str] = {}
    for position, (title, sentences) in enumerate(row.context):
        for number in range(len(sentences)):
            sentence_in.setdefault((title, number), f"{row.id}:{position}")
    found: dict[str, dict[str, None]] = {}
    for title, number in row.supporting_facts:
        found.setdefault(title, {})[sentence_in.get((title, number), f"{row.id}:{title}:{number}")] = None
    return {title: list(ids) for title, ids in found.items()}
