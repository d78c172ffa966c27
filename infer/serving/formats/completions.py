"""`/v1/completions`: the prompt is the question, and the answer is plain text."""

import time
from collections.abc import Iterator
from typing import ClassVar

from infer.serving.errors import ApiError
from infer.serving.formats.chat import usage
from infer.serving.reply import Answer
from infer.serving.request import ChatBody, Json

NAMES = {"messages": "prompt"}


def to_chat(values: Json) -> Json:
    """The request as one for a chat. Raises ApiError for other prompts than one text."""
    prompt = values.pop("prompt", None)
    prompt = prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt
    if not isinstance(prompt, str):
        raise ApiError(400, "prompt: must be one text, the question. Ask several in several requests, as text.", parameter="prompt")
    if type(values.get("logprobs")) is int:  # 0 asks for those of the written tokens
        values["logprobs"] = True
    return values | {"messages": [{"role": "user", "content": prompt}]}


class CompletionsFormat:
    """See `Format`. There is no place for steps and annotations but the extension."""

    id_prefix: ClassVar[str] = "cmpl-"
    last_event: ClassVar[str] = "data: [DONE]\n\n"

    def __init__(self, request: ChatBody, reply_id: str) -> None:
        self._request, self._id = request, reply_id

    def whole(self, answer: Answer) -> Json:
        """The completion."""
        return self._chunk(answer.text, answer.finish_reason) | {"usage": usage(answer), "refinery": answer.extension}

    def opening(self) -> Iterator[Json]:
        """A chunk without text, so that a client hears of the stream at once."""
        yield self._chunk("")

    def text(self, text: str) -> Iterator[Json]:
        """A chunk with a part of the answer."""
        yield self._chunk(text)

    def step(self, line: str) -> Iterator[Json]:
        """Nothing."""
        return iter(())

    def closing(self, answer: Answer) -> Iterator[Json]:
        """The chunk with reason and extension, and usage if requested."""
        yield self._chunk("", answer.finish_reason) | {"refinery": answer.extension}
        if self._request.wants_usage:
            yield self._chunk("") | {"choices": [], "usage": usage(answer)}

    def failed(self, error: ApiError) -> Iterator[Json]:
        """The error in place of a chunk."""
        yield error.body

    def _chunk(self, text: str, finish_reason: str | None = None) -> Json:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
        head = {"id": self._id, "object": "text_completion", "created": int(time.time()), "model": self._request.model}
        return head | {"choices": [choice]}
