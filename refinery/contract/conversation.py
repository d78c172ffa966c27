"""A chat of any shape as a training row: the template's own text and what others say is read, what the assistant says is trained."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

from pydantic import field_validator

from refinery.contract.chat_template import reply_end
from refinery.contract.records import Record
from refinery.contract.segments import Segment, SegmentKind
from refinery.contract.template_slots import begun_by_template, filled, pieces_of, rendered, slot
from refinery.contract.tokenizer import Tokenizer
from refinery.contract.tool_template import CALL_ENDS
from refinery.errors import UnwritableError


class ChatMessage(Record):
    """One message, as chat templates take it. Text parts of a message are joined; other parts are refused."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: list[dict[str, Any]] | None = None
    name: str | None = None
    tool_call_id: str | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _is_text(cls, content: Any) -> Any:
        if not isinstance(content, list):
            return content or ""
        parts = [cast("dict[str, Any]", part) if isinstance(part, dict) else {"type": "?"} for part in cast("list[Any]", content)]
        if any(part.get("type", "text") != "text" for part in parts):
            raise ValueError("has a part that is not text")
        return "".join(str(part["text"]) for part in parts)


class ChatRow(Record):
    """A conversation to train on, of which the first `read` messages are only read.

    `plain` is a prompt and a completion that no template renders; then there are no messages.
    """

    question_id: str
    messages: list[ChatMessage] = []
    read: int = 0
    tools: list[dict[str, Any]] | None = None
    plain: tuple[str, str] | None = None

    @property
    def question(self) -> str:
        """The last thing that the user says."""
        said = [message.content for message in self.messages if message.role == "user"]
        return self.plain[0] if self.plain else said[-1] if said else ""

    @property
    def reply(self) -> str:
        """What the row teaches last."""
        return self.plain[1] if self.plain else self.messages[-1].content


class ChatPair(Record):
    """Two ways to end a conversation, for DPO."""

    question_id: str
    chosen: ChatRow
    rejected: ChatRow

    @property
    def question(self) -> str:
        """See `ChatRow.question`."""
        return self.chosen.question


def chat_segments_of(row: ChatRow, tokenizer: Tokenizer) -> list[Segment]:
    """The row's segments. Every turn of the assistant after the first `read` messages is trained, up to the token that ends it.

    Raises UnwritableError if nothing would be trained, if the template cannot write the row, or if it cannot say which of its text the
    assistant writes.
    """
    if row.plain:
        end = Segment(tokenizer.eos_token, "control_token", trained=True)
        return [Segment(row.plain[0], "prompt"), Segment(row.plain[1], "answer", trained=True), end]
    if not tokenizer.chat_template:
        raise UnwritableError("the base has no chat template, and the row is a conversation. Name one with chat_template.")
    _check_data(row, tokenizer)
    contents = [message.content for message in row.messages]
    whole, turns = _turns(row, tokenizer)
    segments: list[Segment] = []
    place = 0
    for start, end, kind in turns:
        for text, trained in ((whole[place:start], False), (whole[start:end], True)):
            written = filled(pieces_of(text, len(contents), tokenizer), contents)
            segments += [replace(one, kind=_kind(one, kind if trained else "prompt"), trained=trained) for one in written]
        place = end
    return begun_by_template(segments)


def _kind(segment: Segment, kind: SegmentKind) -> SegmentKind:
    return "template" if segment.kind == "template" else kind


def _turns(row: ChatRow, tokenizer: Tokenizer) -> tuple[str, list[tuple[int, int, SegmentKind]]]:
    """The rendered conversation around slots, and where each trained turn begins and ends in it."""
    messages = [message.model_dump(exclude_none=True) | {"content": slot(number)} for number, message in enumerate(row.messages)]
    numbers = [number for number, message in enumerate(row.messages) if message.role == "assistant" and number >= row.read]
    if not numbers:
        raise UnwritableError("no message of the assistant is left to train on.")
    for number in numbers:
        if row.messages[number].tool_calls and not row.messages[number].content:
            messages[number]["content"] = ""
    messages = messages[: numbers[-1] + 1]
    for options in ({"enable_thinking": False}, dict[str, bool]()):
        whole = _render(messages, row, tokenizer, **options)
        before = [_render(messages[:number], row, tokenizer, add_generation_prompt=True, **options) for number in numbers]
        if all(map(whole.startswith, before)):
            break
    else:
        raise UnwritableError("the chat template writes earlier turns otherwise once there are later ones.")
    starts = [len(text) for text in before]
    return whole, [
        (start, _end(whole, start, next_start, tokenizer), "query" if row.messages[number].tool_calls else "answer")
        for number, start, next_start in zip(numbers, starts, [*starts[1:], len(whole)], strict=True)
    ]


def _end(whole: str, start: int, stop: int, tokenizer: Tokenizer) -> int:
    """Where a turn ends: after the first token that ends a reply or a call; at the end of a template without one."""
    marks = {reply_end(tokenizer), tokenizer.eos_token, *CALL_ENDS}
    ends = [place + len(mark) for mark in marks if (place := whole.find(mark, start, stop)) >= 0]
    return min(ends, default=stop)


def _render(messages: Sequence[dict[str, Any]], row: ChatRow, tokenizer: Tokenizer, **options: Any) -> str:
    try:
        return rendered(messages, tokenizer, tools=row.tools, **options)
    except ValueError as error:
        raise UnwritableError(f"the chat template does not write this row ({error}).") from None


def _check_data(row: ChatRow, tokenizer: Tokenizer) -> None:
    """What is no message's text goes through the template as it is, so it may contain no special token."""
    for text in _texts([row.tools, [message.tool_calls for message in row.messages]]):
        ids = tokenizer(text, add_special_tokens=False, split_special_tokens=False)["input_ids"]
        if found := next((token for token in ids if token in tokenizer.added_tokens_decoder), None):
            raise UnwritableError(f"a tool or a call contains the special token {tokenizer.convert_ids_to_tokens(found)!r}.")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        values = cast("Mapping[str, Any] | list[Any]", value)
        inside = [*values, *values.values()] if isinstance(values, Mapping) else values
        yield from (text for one in inside for text in _texts(one))
