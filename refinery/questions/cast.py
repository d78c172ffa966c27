"""TREC CAsT topics as released (`2020_manual_evaluation_topics_v1.0.json`): the user's turns, with rewrites from 2020 on.

Until 2020 the topics hold no replies, only the id of a passage that answers the turn (`supporting`). For those years `history` holds
the user's earlier turns, each followed by an empty reply. From 2021 on, a turn's canonical passage is the reply.
The manual rewrite becomes the question's only reading (`disambiguations`).
"""

from collections.abc import Iterator
from pathlib import Path

from refinery.contract.records import Disambiguation, Question
from refinery.questions.base import DatasetRow, iter_dataset


class _Turn(DatasetRow):
    number: int
    raw_utterance: str
    manual_rewritten_utterance: str | None = None
    manual_canonical_result_id: str | None = None
    passage: str = ""


class _Topic(DatasetRow):
    number: int
    turn: list[_Turn]


def read(path: Path) -> Iterator[Question]:
    """Read a file of topics, which is a test set without answers. Ids are TREC's, `<topic>_<turn>`."""
    return iter_dataset(path, _Topic, _questions, split="test")


def _questions(topic: _Topic) -> list[Question]:
    said = [text for turn in topic.turn for text in (turn.raw_utterance, turn.passage)]
    return [_question(f"{topic.number}_{turn.number}", turn, said[: 2 * position]) for position, turn in enumerate(topic.turn)]


def _question(question_id: str, turn: _Turn, history: list[str]) -> Question:
    rewrite, passage_id = turn.manual_rewritten_utterance, turn.manual_canonical_result_id
    return Question(
        id=question_id,
        text=turn.raw_utterance.strip(),
        history=history or None,
        supporting=[passage_id] if passage_id else None,
        disambiguations=[Disambiguation(text=rewrite.strip())] if rewrite else None,
        dataset="cast",
    )
