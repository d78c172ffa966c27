"""Trajectories in the layout of RQ-RAG's released dataset: `{"id", "dataset", "messages"}`, one chat message per turn.

In that layout, control tokens and evidence are part of the assistant's text (`official` format). Any other text that looks like a
control token or a chat marker is written with a backslash after its first character, so that neither our reader nor another tokenizer
mistakes it for one. Reading removes the backslash. Rows from elsewhere may contain such text unescaped: only `[EOS]` ends a query or
an answer, and only `[/R_Evidences]` ends evidence. A row whose last reply is plain text, as `merge_intermediate.py --no_search` writes
it, is a dialogue without searches: its replies are read as answers.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field

from refinery.contract.control_tokens import RQ_RAG, token_for
from refinery.contract.formats import ACTIONS, SEARCH_ACTIONS, parse_evidence, steps_segments
from refinery.contract.records import Action, Record, Step, Trajectory, Turn, read_records
from refinery.errors import RecordError
from refinery.runtime.files.hub_dataset import hub_dataset
from refinery.runtime.run.bad_rows import bad_row, end_of_rows

CHAT_MARKERS = ("<s>", "</s>", "<unk>", "<pad>", "<|system|>", "<|user|>", "<|assistant|>")
_SPECIAL = [*(token.token for token in RQ_RAG), *CHAT_MARKERS]
# Special texts contain no backslash and, after the first character, none of each other's first characters, so escaping is reversible.
_ESCAPABLE = re.compile("|".join(rf"{re.escape(text[0])}\\*{re.escape(text[1:])}" for text in _SPECIAL))
_ACTION_OF: dict[str, Action] = {token_for(action).token: action for action in ACTIONS}
_OPENING = re.compile("|".join(map(re.escape, _ACTION_OF)))
_START, _STOP, _END = (token_for(role).token for role in ("evidence_start", "evidence_end", "end"))


class Message(Record):
    """One message of a row."""

    role: Literal["system", "user", "assistant"]
    content: str


class ReleaseRow(Record):
    """One row of the released dataset."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    id: str
    dataset: str
    messages: list[Message] = Field(min_length=1)


def release_row(trajectory: Trajectory, dataset: str) -> dict[str, Any]:
    """A trajectory in the released layout, which drops passage ids and provenance. With a system message if it has a system prompt."""
    messages = [Message(role="system", content=escape(trajectory.system_prompt))] if trajectory.system_prompt is not None else []
    for turn in [*(trajectory.history or []), Turn(question=trajectory.question, reply=trajectory.steps)]:
        reply = escape(turn.reply) if isinstance(turn.reply, str) else _write_steps(turn.reply)
        messages += [Message(role="user", content=escape(turn.question)), Message(role="assistant", content=reply)]
    return ReleaseRow(id=trajectory.question_id, dataset=dataset, messages=messages).model_dump()


def read_trajectories(path: Path) -> list[Trajectory]:
    """The trajectories of a file, or of a dataset on the hub: of trajectories, or of rows in the released layout.

    Raises RecordError naming the file and row.
    """
    if not _holds_messages(path):
        return read_records(path, Trajectory)
    return list(release_trajectories(path))


def release_trajectories(path: Path) -> Iterator[Trajectory]:
    """The trajectories of a file in the released layout. Raises RecordError naming the file and row."""
    number = 0
    for number, row in enumerate(read_records(path, ReleaseRow), 1):
        try:
            yield parse_release_row(row, where=f"{path}: row {number}")
        except RecordError as error:
            bad_row(error, path, number)
    end_of_rows(path, number)


def parse_release_row(row: ReleaseRow, *, where: str) -> Trajectory:
    """Read a released row. Passages get their 1-based position as id. Raises RecordError for messages that are not a dialogue."""
    system = row.messages[0].content if row.messages[0].role == "system" else None
    turns = row.messages[1:] if system is not None else row.messages
    if not turns or [message.role for message in turns] != ["user", "assistant"] * (len(turns) // 2):
        raise RecordError(f"{where}: its messages do not alternate between user and assistant. Leave the row out.")
    exchanges = zip(turns[::2], turns[1::2], strict=True)
    history = [Turn(question=unescape(asked.content), reply=_reply(said.content, where)) for asked, said in exchanges]
    if isinstance(history[-1].reply, str):
        history = [turn.model_copy(update={"reply": _as_steps(turn.reply)}) for turn in history]
    last = history.pop()
    return Trajectory(
        question_id=row.id,
        question=last.question,
        steps=_as_steps(last.reply),
        history=history or None,
        system_prompt=unescape(system) if system is not None else None,
    )


def escape(text: str) -> str:
    """Text without control tokens or chat markers. `unescape` restores the original."""
    return _ESCAPABLE.sub(lambda found: f"{found[0][0]}\\{found[0][1:]}", text)


def unescape(text: str) -> str:
    """The text that `escape` was given. Text that was never escaped is unchanged."""
    return _ESCAPABLE.sub(lambda found: found[0][0] + found[0][1:].removeprefix("\\"), text)


def _write_steps(steps: Sequence[Step]) -> str:
    segments = steps_segments(steps, format="official")
    return "".join(segment.text if segment.kind == "control_token" else escape(segment.text) for segment in segments)


def _reply(content: str, where: str) -> str | list[Step]:
    return _read_steps(content.strip(), where) if _OPENING.match(content.lstrip()) else unescape(content)


def _as_steps(reply: str | list[Step]) -> list[Step]:
    return [Step(action="answer", text=reply.strip())] if isinstance(reply, str) else reply


def _read_steps(content: str, where: str) -> list[Step]:
    steps: list[Step] = []
    while content:
        opening = _OPENING.match(content)
        if opening is None:
            raise RecordError(f"{where}: expected the start of a step, found {content[:40]!r}. Leave the row out.")
        action = _ACTION_OF[opening[0]]
        text, content = _until(_END, content[opening.end() :], where)
        step = Step(action=action, text=text)
        if action in SEARCH_ACTIONS and content.startswith(_START):
            found, content = _until(_STOP, content.removeprefix(_START), where)
            step = step.model_copy(update={"passages": parse_evidence(found)})
        steps.append(step)
    return steps


def _until(token: str, content: str, where: str) -> tuple[str, str]:
    """The unescaped text before a token, and the rest after the token."""
    text, closed, rest = content.partition(token)
    if not closed:
        raise RecordError(f"{where}: no {token} closes {text.strip()[:40]!r}. Leave the row out.")
    return unescape(text.strip()), rest.lstrip()


def _holds_messages(path: Path) -> bool:
    """Whether the first row is in the released layout. Errors in reading the file are left to `read_records`."""
    if (dataset := hub_dataset(path)) is not None:
        return "messages" in dataset.columns
    try:
        with path.open(encoding="utf-8") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError):
        return False
    return isinstance(first, dict) and "messages" in first
