"""Preferences from elsewhere, for DPO: `chosen` and `rejected`, with a `prompt` or with what they have in common as one."""

from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from refinery.contract.conversation import ChatPair, ChatRow
from refinery.errors import RecordError
from refinery.tasks.base import PairTask
from refinery.tasks.chat import CARD, completed, messages_of, read_foreign


def _pair(row: Mapping[str, Any], name: str) -> ChatPair:
    if not {"chosen", "rejected"} <= row.keys():
        raise RecordError(f"has the columns {', '.join(row) or 'of none'}; expected `chosen` and `rejected`, and `prompt`.")
    found = {"question_id": str(row.get("id", name)), "tools": row.get("tools") or None}
    if "prompt" in row:
        chosen, rejected = (completed(row["prompt"], row[side], found) for side in ("chosen", "rejected"))
    else:
        one, other = (messages_of(row[side]) for side in ("chosen", "rejected"))
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        chosen, rejected = (ChatRow(**found, messages=messages, read=shared) for messages in (one, other))
    return ChatPair(question_id=found["question_id"], chosen=chosen, rejected=rejected)


def _read(path: Path, record: type[ChatPair]) -> list[ChatPair]:
    return read_foreign(path, _pair)


TASK = PairTask(name="chat_preference", record=ChatPair, read_file=_read, card=lambda recipe: CARD)
