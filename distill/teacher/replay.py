"""Replay a run's requests from its store: the task runs again and gets the replies that were paid for.

A reply is stored under a hash of its request, so a prompt that finds a reply is the prompt that was sent.
"""

from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel

from distill.teacher.teacher import RequestLog, Teacher
from refinery.llms.served.endpoint import EndpointConfig, Reply
from refinery.llms.served.paid.budget import Budget
from refinery.llms.served.transport.chat_request import ChatRequest
from refinery.retrievers.base import Retriever
from refinery.stores.base import ReplyStore

T = TypeVar("T", bound=BaseModel)
Messages = tuple[tuple[str, str], ...]


class CacheMiss(Exception):
    """The store does not contain this reply."""


class PromptCaptured(Exception):
    """A local model was given `prompt`; its reply is not in the store."""

    def __init__(self, prompt: str) -> None:
        super().__init__(prompt)
        self.prompt = prompt


class Replay(Teacher):
    """A teacher that answers only from the store. `replayed` lists its requests and replies, in order."""

    def __init__(self, config: EndpointConfig, store: ReplyStore, **options: Any) -> None:
        super().__init__(config, store, NullTransport(), Budget(config, None), **options)
        self.replayed: list[tuple[ChatRequest, Reply]] = []

    async def _reply(self, messages: Messages, schema: type[T] | None, asked: RequestLog, rollout: int) -> Reply:
        request = self.request(messages, schema, rollout)
        stored = self.stored(request, schema, rollout)
        if stored is None:
            raise CacheMiss
        self.replayed.append((request, stored))
        return await super()._reply(messages, schema, asked, rollout)


class StoredSearches(Retriever):
    """A run's retriever without its corpus, for searches that are in the run's store; `revision` is part of their keys."""

    def __init__(self, revision: str) -> None:
        self.revision = revision

    async def search(self, query: str, **options: Any) -> NoReturn:
        """Raises CacheMiss, because the store does not contain this search."""
        raise CacheMiss


class PromptRecorder:
    """Takes the place of a model and records a prompt: the first prompt that it receives ends the row."""

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
        """Do nothing, because no connection is open."""
