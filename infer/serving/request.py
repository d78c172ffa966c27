"""Read a chat completion request: the question, the conversation before it, and what it asks for that a decoder does not do."""

import uuid
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from infer.serving.errors import ApiError
from infer.serving.housekeeping import task_of
from infer.serving.messages import Message, history_of
from refinery.contract.records import Question

_REFUSED = ("response_format", "logprobs", "modalities", "audio", "web_search_options")
_NOTHING = (None, False, [], {}, {"type": "text"}, ["text"])
_MOST_CHARACTERS = 1 << 20  # of text, which a decoder reads, unlike pictures
# Clients of llama.cpp and LM Studio send -1 for no limit.
_Limit = Annotated[int | None, Field(ge=1), BeforeValidator(lambda limit: None if limit == -1 else limit)]


class _StreamOptions(BaseModel):
    include_usage: bool = False


class ChatBody(BaseModel):
    """A request. Keys that a decoder does not use are allowed, and the reply lists them as ignored."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: list[Message] = Field(min_length=1)
    max_tokens: _Limit = None
    max_completion_tokens: _Limit = None
    n: Literal[1] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None

    @property
    def question(self) -> Question:
        """The last message, with the conversation before it."""
        return Question(id=f"chatcmpl-{uuid.uuid4().hex}", text=self.messages[-1].text, history=history_of(self.messages[:-1]))

    @property
    def limit(self) -> int | None:
        """The maximum tokens of the answer; a decoder's intermediate steps have the recipe's limits."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def ignored(self) -> list[str]:
        """What was sent but had no effect: keys, system messages, and images in earlier turns."""
        sent = [name for name, value in (self.model_extra or {}).items() if value not in _NOTHING]
        instructs = any(message.role in ("system", "developer") for message in self.messages)
        shows = any(message.unreadable for message in self.messages)
        return [*sent, *(["system messages"] if instructs else []), *(["parts that are not text"] if shows else [])]


def parse_body(body: bytes) -> ChatBody:
    """Parse the request. Raises ApiError (400, or 413 for too long a conversation), which names the key that caused it."""
    try:
        request = ChatBody.model_validate_json(body)
    except ValidationError as error:
        fault = error.errors()[0]
        parameter = ".".join(map(str, fault["loc"])) or None
        raise ApiError(400, f"{parameter or 'body'}: {fault['msg']}", parameter=parameter) from None
    _check_keys(request.model_extra or {})
    _check_length(request.messages)
    _check_last(request.messages)
    return request


def _check_keys(extra: dict[str, object]) -> None:
    for name in _REFUSED:
        if extra.get(name) not in _NOTHING:
            raise ApiError(400, f"{name}: is not supported, because a decoder answers in plain text. Leave it out.", parameter=name)
    for name in ("tool_choice", "function_call"):  # chat interfaces offer their tools with every request, and mostly leave the choice
        choice = extra.get(name)
        if choice == "required" or (isinstance(choice, dict) and not _leaves_the_choice(choice)):
            raise ApiError(400, f"{name}: demands a call, and a decoder calls no tools. Set it to 'auto' or leave it out.", parameter=name)


def _leaves_the_choice(choice: dict[str, object]) -> bool:
    allowed = choice.get("allowed_tools")
    return isinstance(allowed, dict) and allowed.get("mode") == "auto"


def _check_length(messages: list[Message]) -> None:
    if (length := sum(len(message.text) for message in messages)) > _MOST_CHARACTERS:
        fault = f"messages: they hold {length:,} characters of text, and at most {_MOST_CHARACTERS:,} are read. Begin a new conversation."
        raise ApiError(413, fault, parameter="messages")


def _check_last(messages: list[Message]) -> None:
    last = messages[-1]
    if last.role == "user" and last.unreadable:
        fault = f"messages: the last one holds a part of type '{last.unreadable[:40]}', and a decoder reads only text. Ask without it."
        raise ApiError(400, fault, parameter=f"messages.{len(messages) - 1}.content")
    if not (last.role == "user" or task_of(messages)) or not last.text.strip():
        raise ApiError(400, "messages: the last one is the question, so it must be from the user and not blank.", parameter="messages")
