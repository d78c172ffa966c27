"""Translate between OpenAI's chat completions and decoders: a request to a question, a prediction to a completion or its chunks."""

import json
import re
import time
import uuid
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infer.fitting import fit_text
from refinery.contract.records import Question
from refinery.contract.tokenizer import Tokenizer
from refinery.contract.trace import Prediction

_CANNOT = ("tools", "functions", "response_format", "logprobs", "modalities", "audio", "web_search_options")
_NOTHING = (None, False, [], {}, {"type": "text"}, ["text"])


class ApiError(Exception):
    """An error that the client receives in OpenAI's format; `parameter` is the request key that caused it."""

    def __init__(self, status: int, message: str, *, code: str | None = None, parameter: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.body = {"error": {"message": message, "type": kind, "param": parameter, "code": code}}


class _TextPart(BaseModel):
    type: Literal["text"]
    text: str


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_TextPart]

    @property
    def text(self) -> str:
        """The content as one string."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class _StreamOptions(BaseModel):
    include_usage: bool = False


class ChatBody(BaseModel):
    """A request. Keys that a decoder does not use are allowed, and the reply lists them as ignored."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: list[_Message] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    n: Literal[1] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None

    @property
    def question(self) -> Question:
        """The last message."""
        return Question(id=f"chatcmpl-{uuid.uuid4().hex}", text=self.messages[-1].text)

    @property
    def turns_before(self) -> list[tuple[str, str]]:
        """Role and text of the turns before the last message; system instructions are not turns."""
        return [(message.role, message.text) for message in self.messages[:-1] if message.role in ("user", "assistant")]

    @property
    def is_follow_up(self) -> bool:
        """Whether the user has asked a question before."""
        return any(role == "user" for role, _ in self.turns_before)

    @property
    def limit(self) -> int | None:
        """The maximum tokens of the answer; a decoder's intermediate steps have the recipe's limits."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def ignored(self) -> list[str]:
        """The keys that were sent but had no effect."""
        sent = [name for name, value in (self.model_extra or {}).items() if value not in _NOTHING]
        return [*sent, *(["system messages"] if any(message.role in ("system", "developer") for message in self.messages) else [])]


def parse_body(body: bytes) -> ChatBody:
    """Parse the request. Raises ApiError (400), which names the key that caused it."""
    try:
        request = ChatBody.model_validate_json(body)
    except ValidationError as error:
        fault = error.errors()[0]
        parameter = ".".join(map(str, fault["loc"])) or None
        raise ApiError(400, f"{parameter or 'body'}: {fault['msg']}", parameter=parameter) from None
    for name in _CANNOT:
        if (request.model_extra or {}).get(name) not in _NOTHING:
            raise ApiError(400, f"{name}: is not supported, because a decoder answers in plain text. Leave it out.", parameter=name)
    if request.messages[-1].role != "user" or not request.messages[-1].text.strip():
        raise ApiError(400, "messages: the last one is the question, so it must be from the user and not blank.", parameter="messages")
    return request


def completion(request: ChatBody, prediction: Prediction, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """The whole reply. Its extension `refinery` holds trace, paths, selections and cost; `tokenizer` applies the client's token limit."""
    content, finish_reason = _content(request, prediction, tokenizer)
    message = {"role": "assistant", "content": content, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
    return _head(request, prediction.question_id, "chat.completion") | {
        "choices": [choice],
        "usage": _usage(prediction),
        "refinery": _extension(request, prediction),
    }


def opening_chunk(request: ChatBody, completion_id: str) -> str:
    """The first event of a stream, which is sent before the answer is known."""
    return _event(_chunk(request, completion_id, {"role": "assistant", "content": ""}))


def closing_chunks(request: ChatBody, prediction: Prediction, tokenizer: Tokenizer | None) -> Iterator[str]:
    """The events that end a stream: the answer, which a decoder has only at its end, the extension, and usage if requested."""
    completion_id = prediction.question_id
    content, finish_reason = _content(request, prediction, tokenizer)
    yield _event(_chunk(request, completion_id, {"content": content}))
    yield _event(_chunk(request, completion_id, {}, finish_reason=finish_reason) | {"refinery": _extension(request, prediction)})
    if request.stream_options and request.stream_options.include_usage:
        yield _event(_head(request, completion_id, "chat.completion.chunk") | {"choices": [], "usage": _usage(prediction)})
    yield "data: [DONE]\n\n"


def error_event(error: ApiError) -> str:
    """An error after the stream has started, in the form that OpenAI's client raises."""
    return _event(error.body)


def _content(request: ChatBody, prediction: Prediction, tokenizer: Tokenizer | None) -> tuple[str, Literal["stop", "length"]]:
    """The answer, cut to the client's limit, and whether it was cut. Without a tokenizer a word counts as a token."""
    answer, limit = prediction.answer, request.limit
    if limit is None:
        return answer, "stop"
    if tokenizer is not None:
        kept = fit_text(answer, limit, tokenizer)
    else:
        ends = [word.end() for word in re.finditer(r"\S+", answer)]
        kept = answer if len(ends) <= limit else answer[: ends[limit - 1]]
    return kept, "stop" if kept == answer else "length"


def _head(request: ChatBody, completion_id: str, kind: str) -> dict[str, Any]:
    return {"id": completion_id, "object": kind, "created": int(time.time()), "model": request.model}


def _chunk(request: ChatBody, completion_id: str, delta: dict[str, str], *, finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return _head(request, completion_id, "chat.completion.chunk") | {"choices": [choice]}


def _usage(prediction: Prediction) -> dict[str, int]:
    """The tokens that all calls of the decoder read and wrote."""
    read, written = prediction.cost.prefill_tokens, prediction.cost.decode_tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _extension(request: ChatBody, prediction: Prediction) -> dict[str, Any]:
    held = json.loads(prediction.model_dump_json(exclude_none=True, exclude={"question_id", "question", "answer"}))
    return held | {"ignored": request.ignored}


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
