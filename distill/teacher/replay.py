"""A run's requests once more, from its store: the task asks again, and what it is answered is what was paid for.

A reply is found under a hash of what was asked, so a prompt that finds one is the prompt that was sent.
"""

from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel

from distill.stores.base import ReplyStore
from distill.teacher.budget import Budget
from distill.teacher.teacher import RequestLog, Teacher
from refinery.llms.served.chat_request import ChatRequest
from refinery.llms.served.endpoint import EndpointConfig, Reply

T = TypeVar("T", bound=BaseModel)
Messages = tuple[tuple[str, str], ...]


class CacheMiss(Exception):
    """The store does not hold this reply."""


class PromptCaptured(Exception):
    """A local model was given `prompt`; its reply is not in the store."""

    def __init__(self, prompt: str) -> None:
        super().__init__(prompt)
        self.prompt = prompt


class Replay(Teacher):
    """A teacher that has only the store. `heard` is what it was asked and what it replied, in order."""

    def __init__(self, config: EndpointConfig, store: ReplyStore) -> None:
        super().__init__(config, store, NullTransport(), Budget(config, None))
        self.heard: list[tuple[ChatRequest, Reply]] = []

    async def _reply(self, messages: Messages, schema: type[T] | None, asked: RequestLog, rollout: int) -> Reply:
        request = self.request(messages, schema, rollout)
        stored = self.stored(request, schema, rollout)
        if stored is None:
            raise CacheMiss
        self.heard.append((request, stored))
        return await super()._reply(messages, schema, asked, rollout)


class PromptRecorder:
    """Stands for a model: the first prompt that it is given ends the row."""

    async def ask(self, prompt: str, *arguments: Any, **options: Any) -> NoReturn:
        """Raises PromptCaptured."""
        raise PromptCaptured(prompt)

    text = ask

    def context(self, prompt: str) -> NoReturn:
        """Raises PromptCaptured."""
        raise PromptCaptured(prompt)


class NullTransport:
    """A transport that sends nothing."""

    retries = in_flight = 0

    async def reply(self, request: ChatRequest) -> NoReturn:
        """Raises CacheMiss."""
        raise CacheMiss

    async def close(self) -> None:
        """Nothing is open."""
