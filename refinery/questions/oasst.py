"""OpenAssistant's conversation trees as released (`*_trees.jsonl`): every user message is a question.

`history` is the path from the root to the message. `answers` are the assistant's replies to it, best first; some messages have none.
On the hub, each message is a row that names its parent.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from refinery.contract.records import Question
from refinery.errors import RecordError
from refinery.questions.base import DatasetRow, Reader, iter_dataset, parse_row


class _Message(DatasetRow):
    message_id: str
    text: str
    deleted: bool = False
    rank: int | None = None
    replies: list["_Message"] = []


class _FlatMessage(_Message):
    parent_id: str | None = None


class _Tree(DatasetRow):
    prompt: _Message


def read(path: Path) -> Iterator[Question]:
    """Read a release file. One tree gives several questions. Everything below a deleted message is left out."""
    return iter_dataset(path, _Tree, lambda tree: _questions(tree.prompt, []))


def of_rows(path: Path, rows: Iterable[tuple[str, Any]]) -> Iterator[Question]:
    """The questions of (where, values) pairs, one for each message. They are all read first, because any may be a reply to any."""
    messages = {where: parse_row(values, _FlatMessage, where=where) for where, values in rows}
    known = {message.message_id for message in messages.values()}
    replies: dict[str | None, list[_FlatMessage]] = {}
    for where, message in messages.items():
        if message.parent_id is not None and message.parent_id not in known:
            raise RecordError(f"{where}: its parent '{message.parent_id}' is not among the rows. Name a whole split.")
        replies.setdefault(message.parent_id, []).append(message)
    trees = ((where, {"prompt": _tree(message, replies)}) for where, message in messages.items() if message.parent_id is None)
    return iter_dataset(path, _Tree, lambda tree: _questions(tree.prompt, []), rows=trees)


def _tree(message: _FlatMessage, replies: dict[str | None, list[_FlatMessage]]) -> dict[str, Any]:
    """A message with the messages below it, as the release nests them."""
    return message.model_dump(exclude={"replies"}) | {"replies": [_tree(reply, replies) for reply in replies.get(message.message_id, [])]}


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


READER = Reader(read, of_rows, repositories=("OpenAssistant/oasst1", "OpenAssistant/oasst2"))
