"""`/v1/chat/completions`: the answer as an assistant's message."""

import time
from collections.abc import Iterator
from typing import ClassVar

from infer.serving.annotations import Annotation
from infer.serving.errors import ApiError
from infer.serving.reply import Answer
from infer.serving.request import ChatBody, Json


class ChatFormat:
    """See `Format`. Steps are `reasoning_content`, which interfaces show apart from the answer."""

    id_prefix: ClassVar[str] = "chatcmpl-"
    last_event: ClassVar[str] = "data: [DONE]\n\n"

    def __init__(self, request: ChatBody, reply_id: str) -> None:
        self._request, self._id = request, reply_id

    def whole(self, answer: Answer) -> Json:
        """The completion."""
        message = {"role": "assistant", "content": answer.text, "refusal": None, "annotations": url_citations(answer)}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish_reason}
        return self._head("chat.completion") | {"choices": [choice], "usage": usage(answer), "refinery": answer.extension}

    def opening(self) -> Iterator[Json]:
        """A chunk with the role."""
        yield self._chunk({"role": "assistant", "content": ""})

    def text(self, text: str) -> Iterator[Json]:
        """A chunk with a part of the answer."""
        yield self._chunk({"content": text})

    def step(self, line: str) -> Iterator[Json]:
        """A chunk with a step."""
        yield self._chunk({"reasoning_content": line})

    def closing(self, answer: Answer) -> Iterator[Json]:
        """The chunk with reason, annotations and extension, and usage if requested."""
        cited = url_citations(answer)
        yield self._chunk({"annotations": cited} if cited else {}, answer.finish_reason) | {"refinery": answer.extension}
        if self._request.wants_usage:
            yield self._head("chat.completion.chunk") | {"choices": [], "usage": usage(answer)}

    def failed(self, error: ApiError) -> Iterator[Json]:
        """The error in place of a chunk."""
        yield error.body

    def _head(self, kind: str) -> Json:
        return {"id": self._id, "object": kind, "created": int(time.time()), "model": self._request.model}

    def _chunk(self, delta: Json, finish_reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._head("chat.completion.chunk") | {"choices": [choice]}


def usage(answer: Answer) -> dict[str, int]:
    """The tokens as both kinds of completion count them."""
    read, written = answer.prompt_tokens, answer.completion_tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def url_citations(answer: Answer) -> list[Json]:
    """Annotations of passages with an address. A message cannot have others; all passages are in the extension's `read`."""
    return [{"type": "url_citation", "url_citation": _url_citation(one)} for one in answer.annotations if one.url]


def _url_citation(one: Annotation) -> Json:
    return {"url": one.url, "title": one.title, "start_index": one.start, "end_index": one.end}
