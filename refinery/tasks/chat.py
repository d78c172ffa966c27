"""Conversations from elsewhere, in the layouts that the field's trainers read: what the assistant says is learned, tool calls included.

A row is one of: `messages` (with `tools`); `prompt` and `completion`, as texts or messages; ShareGPT's `conversations`; Alpaca's
`instruction`, `input` and `output`. Texts of `prompt` and `completion` are trained as they stand, without a chat template.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import ConfigDict, ValidationError

from refinery.contract.conversation import ChatMessage, ChatRow
from refinery.contract.records import Record, iter_records, no_rows
from refinery.errors import RecordError
from refinery.tasks.base import Card, ChatTask

_SPEAKERS = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "observation": "tool",
    "tool": "tool",
}
LAYOUTS = "`messages`, `prompt` and `completion`, `conversations`, or `instruction` and `output`"


class ForeignRow(Record):
    """A row with any columns."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def columns(self) -> dict[str, Any]:
        """The values by column."""
        return self.model_extra or {}


def read_foreign(path: Path, convert: Any) -> list[Any]:
    """The converted rows of a file, a folder's files of a split, or a dataset on the hub. Raises RecordError naming the row."""
    rows: list[Any] = []
    for number, row in enumerate(iter_records(path, ForeignRow), 1):
        try:
            rows.append(convert(row.columns, f"{Path(path).stem}:{number}"))
        except (ValidationError, RecordError, KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{path}: row {number}: {_said(error)}") from None
    if not rows:
        raise no_rows(path, ChatRow)
    return rows


def _said(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return f"has no {error}" if isinstance(error, KeyError) else str(error)


def chat_row(row: Mapping[str, Any], name: str) -> ChatRow:
    """One row of any of the layouts."""
    tools = row.get("tools")
    found: dict[str, Any] = {
        "question_id": str(row.get("id", name)),
        "tools": json.loads(tools) if isinstance(tools, str) else tools or None,
    }
    if "messages" in row:
        return ChatRow(**found, messages=messages_of(row["messages"]))
    if "prompt" in row and "completion" in row:
        return completed(row["prompt"], row["completion"], found)
    if "conversations" in row:
        return ChatRow(**found, messages=messages_of(row["conversations"]))
    if "instruction" in row and "output" in row:
        asked = "\n\n".join(filter(None, (str(row["instruction"]), str(row.get("input") or ""))))
        system = [ChatMessage(role="system", content=row["system"])] if row.get("system") else []
        return ChatRow(
            **found, messages=[*system, ChatMessage(role="user", content=asked), ChatMessage(role="assistant", content=row["output"])]
        )
    raise RecordError(f"has the columns {', '.join(row) or 'of none'}; expected {LAYOUTS}.")


def completed(prompt: Any, completion: Any, found: Mapping[str, Any]) -> ChatRow:
    """A prompt that is read, and a completion that is trained: two texts, or the messages of one conversation."""
    if isinstance(prompt, str) and isinstance(completion, str):
        return ChatRow(**found, plain=(prompt, completion))
    read, written = messages_of(prompt), messages_of(completion)
    return ChatRow(**found, messages=[*read, *written], read=len(read))


def messages_of(values: Any) -> list[ChatMessage]:
    """Messages, or ShareGPT's turns."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise RecordError("messages are not a list.")
    return [_message(value) for value in cast("Sequence[Any]", values)]


def _message(value: Any) -> ChatMessage:
    if not isinstance(value, Mapping):
        raise RecordError("a message is not an object.")
    message = cast("Mapping[str, Any]", value)
    if "from" not in message:
        return ChatMessage(**{name: one for name, one in message.items() if name in ChatMessage.model_fields})
    speaker, said = message["from"], message["value"]
    if speaker == "function_call":
        return ChatMessage(role="assistant", tool_calls=[{"type": "function", "function": json.loads(said)}])
    if speaker not in _SPEAKERS:
        raise RecordError(f"nobody is called {speaker!r} in ShareGPT's turns.")
    return ChatMessage.model_validate({"role": _SPEAKERS[speaker], "content": said})


def _read(path: Path, record: type[ChatRow]) -> list[ChatRow]:
    return read_foreign(path, chat_row)


CARD = Card(
    purpose="Continues conversations as those that it was trained on.",
    program="""\
context = llm.context("Which country is Lyon in?")
print(asyncio.run(context.generate(max_new_tokens=64)).text)""",
)
TASK = ChatTask(name="chat", read_file=_read, card=lambda recipe: CARD)
