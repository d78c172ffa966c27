"""A run's requests once more, from its store: the task asks again, and what it is answered is what was paid for.

A reply is found under a hash of what was asked, so a prompt that finds one is the prompt that was sent.
"""

from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel

from distill.teacher.budget import Budget
from distill.teacher.store import EffectStore
from distill.teacher.teacher import Asked, Teacher
from refinery.llms.served.endpoint import ChatRequest, EndpointConfig, Reply

T = TypeVar("T", bound=BaseModel)
Messages = tuple[tuple[str, str], ...]


class NotPaid(Exception):
    """The store does not hold this reply."""


class Heard(Exception):
    """A local model was given `prompt`; its reply is not in the store."""

    def __init__(self, prompt: str) -> None:
        super().__init__(prompt)
        self.prompt = prompt


class Replay(Teacher):
    """A teacher that has only the store. `heard` is what it was asked and what it replied, in order."""

    def __init__(self, config: EndpointConfig, store: EffectStore) -> None:
        super().__init__(config, store, _Nobody(), Budget(config, None))
        self.heard: list[tuple[ChatRequest, Reply]] = []

    async def _reply(self, messages: Messages, schema: type[T] | None, asked: Asked, rollout: int) -> Reply:
        request = self.request(messages, schema, rollout)
        stored = self.stored(request, schema, rollout)
        if stored is None:
            raise NotPaid
        self.heard.append((request, stored))
        return await super()._reply(messages, schema, asked, rollout)


class Listener:
    """Stands for a model: the first prompt that it is given ends the row."""

    async def ask(self, prompt: str, *arguments: Any, **options: Any) -> NoReturn:
        """Raises Heard."""
        raise Heard(prompt)

    text = ask

    def context(self, prompt: str) -> NoReturn:
        """Raises Heard."""
        raise Heard(prompt)


class _Nobody:
    """A transport that sends nothing."""

    retries = in_flight = 0

    async def reply(self, request: ChatRequest) -> NoReturn:
        raise NotPaid

    async def close(self) -> None:
        return
