"""`/v1/responses`: items in, and a message with annotations out. Nothing is stored, so no earlier response can be named."""

import time
from collections.abc import Iterator
from typing import Any, ClassVar, cast

from infer.serving.annotations import Annotation
from infer.serving.errors import ApiError
from infer.serving.reply import Answer
from infer.serving.request import ChatBody, Json

NAMES = {"messages": "input", "max_completion_tokens": "max_output_tokens", "response_format": "text.format"}
_PARTS = {"input_text": "text", "output_text": "text"}
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
# Items of another model's earlier turns, which a decoder does not read.
_PASSED_OVER = ("function_call", "function_call_output", "reasoning", "web_search_call", "file_search_call")


def to_chat(values: Json) -> Json:
    """The request as one for a chat. Raises ApiError for items that cannot be read."""
    asked, instructions = values.pop("input", None), values.pop("instructions", None)
    items: list[Any] = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked if isinstance(asked, list) else []
    messages = [_message(item, number) for number, item in enumerate(items) if _type_of(item) not in _PASSED_OVER]
    values["messages"] = [*([{"role": "system", "content": instructions}] if instructions else []), *messages]
    values["max_completion_tokens"] = values.pop("max_output_tokens", None)
    text = values.pop("text", None)
    values["response_format"] = text.get("format") if isinstance(text, dict) else text
    include = values.get("include")
    if isinstance(include, list) and "message.output_text.logprobs" in include:
        values["logprobs"] = True
    return values


def _type_of(item: Any) -> str | None:
    kind = cast("Json", item).get("type") if isinstance(item, dict) else None
    return kind if isinstance(kind, str) else None


def _message(item: Any, number: int) -> Json:
    if not isinstance(item, dict) or _type_of(item) not in (None, "message"):
        fault = f"input.{number}: is not a message, and nothing is stored that it could name. Send the conversation's messages."
        raise ApiError(400, fault, parameter=f"input.{number}")
    content = item.get("content")
    if isinstance(content, list):
        content = [part | {"type": _PARTS.get(kind, kind)} if (kind := _type_of(part)) else part for part in content]
    return {"role": item.get("role"), "content": content}


class ResponsesFormat:
    """See `Format`. The trace is in the extension; a stream has no event for its steps."""

    id_prefix: ClassVar[str] = "resp_"
    last_event: ClassVar[str] = ""

    def __init__(self, request: ChatBody, reply_id: str) -> None:
        self._request, self._id, self._item_id = request, reply_id, reply_id.replace("resp_", "msg_", 1)
        self._created, self._number = int(time.time()), -1

    def whole(self, answer: Answer) -> Json:
        """The response."""
        reason = _REASONS.get(answer.finish_reason)
        return self._response("incomplete" if reason else "completed", [self._item(answer)]) | {
            "incomplete_details": {"reason": reason} if reason else None,
            "usage": _usage(answer),
            "refinery": answer.extension,
        }

    def opening(self) -> Iterator[Json]:
        """The response, its message and its part, all still empty."""
        started = self._response("in_progress", [])
        yield self._event("created", response=started)
        yield self._event("in_progress", response=started)
        yield self._event("output_item.added", output_index=0, item=self._item(None))
        yield self._part_event("content_part.added", part=_part(None))

    def text(self, text: str) -> Iterator[Json]:
        """A part of the answer."""
        if text:
            yield self._part_event("output_text.delta", delta=text, logprobs=[])

    def step(self, line: str) -> Iterator[Json]:
        """Nothing."""
        return iter(())

    def closing(self, answer: Answer) -> Iterator[Json]:
        """The annotations, and everything whole."""
        for number, one in enumerate(answer.annotations):
            yield self._part_event("output_text.annotation.added", annotation_index=number, annotation=_annotation(one))
        yield self._part_event("output_text.done", text=answer.text, logprobs=[])
        yield self._part_event("content_part.done", part=_part(answer))
        yield self._event("output_item.done", output_index=0, item=self._item(answer))
        response = self.whole(answer)
        yield self._event(response["status"], response=response)

    def failed(self, error: ApiError) -> Iterator[Json]:
        """The response with the error."""
        fault = {"code": "server_error", "message": str(error)}
        yield self._event("failed", response=self._response("failed", []) | {"error": fault})

    def _event(self, kind: str, **values: Any) -> Json:
        self._number += 1
        return {"type": f"response.{kind}", "sequence_number": self._number, **values}

    def _part_event(self, kind: str, **values: Any) -> Json:
        return self._event(kind, item_id=self._item_id, output_index=0, content_index=0, **values)

    def _response(self, status: str, output: list[Json]) -> Json:
        head = {"id": self._id, "object": "response", "created_at": self._created, "model": self._request.model, "status": status}
        fixed = {"parallel_tool_calls": False, "tool_choice": "auto", "tools": [], "store": False}
        return head | {"output": output, "error": None, "incomplete_details": None} | fixed

    def _item(self, answer: Answer | None) -> Json:
        status = "in_progress" if answer is None else "incomplete" if answer.finish_reason in _REASONS else "completed"
        content = [] if answer is None else [_part(answer)]
        return {"type": "message", "id": self._item_id, "role": "assistant", "status": status, "content": content}


def _part(answer: Answer | None) -> Json:
    annotations = [_annotation(one) for one in answer.annotations] if answer else []
    return {"type": "output_text", "text": answer.text if answer else "", "annotations": annotations, "logprobs": []}


def _annotation(one: Annotation) -> Json:
    if one.url:
        return {"type": "url_citation", "url": one.url, "title": one.title, "start_index": one.start, "end_index": one.end}
    return {"type": "file_citation", "file_id": one.passage.id, "filename": one.title, "index": one.end}


def _usage(answer: Answer) -> Json:
    read, written = answer.prompt_tokens, answer.completion_tokens
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }
