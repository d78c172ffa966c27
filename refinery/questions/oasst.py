"""OpenAssistant's conversation trees as released (`*_trees.jsonl`): every user message is a question.

`history` is the path from the root to the message. `answers` are the assistant's replies to it, best first; some messages have none.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, iter_dataset


class _Message(DatasetRow):
    message_id: str
    text: str
    deleted: bool = False
    rank: int | None = None
    replies: list["_Message"] = []


class _Tree(DatasetRow):
    prompt: _Message


def read(path: Path) -> Iterator[Question]:
    """Read a release file. One tree gives several questions. Everything below a deleted message is left out."""
    return iter_dataset(path, _Tree, lambda tree: _questions(tree.prompt, []))


def _questions(message: _Message, history: Sequence[str]) -> list[Question]:
    if message.deleted:
        return []
    replies = sorted((reply for reply in message.replies if not reply.deleted), key=lambda reply: reply.rank or 0)
    asked = Question(
        id=message.message_id,
        text=message.text.strip(),
        answers=[reply.text for reply in replies],
        history=list(history) or None,
        dataset="oasst",
    )
    later = [(follow_up, [*history, message.text, reply.text]) for reply in replies for follow_up in reply.replies]
    return [asked, *(question for follow_up, before in later for question in _questions(follow_up, before))]
