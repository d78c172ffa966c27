"""The teacher: typed replies from a chat endpoint, each of which is stored before a row uses it.

A reply is looked up under everything that can change it, and requested if it is not in the store. It is parsed, repaired if only its
punctuation is wrong, and otherwise requested once more with the error shown. If that fails too, the row is rejected with a reason.
"""

import asyncio
import dataclasses
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel

from distill.stores.base import ReplyStore, effect_key
from distill.teacher.budget import Budget
from refinery.errors import LLMError
from refinery.llms.served.chat_request import ChatRequest
from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest, Reply, UnusableEndpoint
from refinery.llms.served.json_reply import ends_with_object, read_reply, reads_as_refusal
from refinery.llms.served.protocols.base import protocol_of
from refinery.prompts.render import render_prompt, turns_of
from refinery.runtime.fingerprint import store_key, text_fingerprint
from refinery.runtime.single_flight import SingleFlight

T = TypeVar("T", bound=BaseModel)


class RejectedRow(LLMError):
    """This row cannot be labeled; `metrics.json` counts it under `reason`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


@dataclass(slots=True)
class RequestLog:
    """The requests that one row has made to the teacher, for its provenance."""

    request_ids: list[str] = field(default_factory=list)
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    cost_usd: float | None = None
    examples: str | None = None  # the fingerprint of those that were shown


class Transport(Protocol):
    """Sends chats to the endpoint, live or in batch jobs."""

    retries: int

    @property
    def in_flight(self) -> int:
        """The number of requests that were sent but not answered."""
        ...

    def reply(self, request: ChatRequest) -> Awaitable[Reply]:
        """The reply, once it is stored. Raises RefusedRequest for a fault of this request, UnusableEndpoint for one of the endpoint."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def persist_in(store: ReplyStore, enter: Callable[[bytes, Reply], None] | None = None) -> Callable[[ChatRequest, Reply], Awaitable[None]]:
    """A callback that stores a reply, which a transport awaits before it returns the reply; `enter` records its cost with it."""

    async def persist(request: ChatRequest, reply: Reply) -> None:
        if enter is not None:
            enter(request.key, reply)
        await store.put(request.key, reply.stored())

    return persist


class Teacher:
    """Asks the endpoint and parses its replies; `calls` counts requests that were sent, `hits` those that the store answered."""

    def __init__(self, config: EndpointConfig, store: ReplyStore, transport: Transport, budget: Budget) -> None:
        self.config, self.store, self.transport, self.budget = config, store, transport, budget
        self.calls = self.hits = self.num_prompt_tokens = self.num_completion_tokens = self.num_reasoning_tokens = 0
        self.models: Counter[str] = Counter()
        self.readings: Counter[str] = Counter()  # how replies were read: as requested, repaired, or leniently
        self._provider, self._optional = _provider(config), json.dumps(config.optional(), sort_keys=True)
        self._in_flight: SingleFlight[bytes, Reply] = SingleFlight()

    async def ask(self, prompt: str, schema: type[T], asked: RequestLog, *, rollout: int = 0) -> T:
        """The reply to `prompt` parsed as `schema`; each `rollout` is a separate sample.

        Raises RejectedRow if there is no usable reply, UnusableEndpoint and BudgetExhausted if the run cannot continue.
        """
        messages = turns_of(prompt)
        asked.examples = text_fingerprint(text for _, text in messages[:-1]) if len(messages) > 1 else None
        reply = await self._whole_reply(messages, schema, asked, rollout)
        try:
            return self._read(reply, schema)
        except ValueError as error:
            fault = str(error)
        correction = render_prompt("teacher_correction", fault=fault)
        reply = await self._whole_reply((*messages, ("assistant", reply.text), ("user", correction)), schema, asked, rollout)
        try:
            return self._read(reply, schema, corrected=True)
        except ValueError as error:
            raise RejectedRow("malformed", f"{error}; reply: {reply.text[:200]!r}") from None

    def _read(self, reply: Reply, schema: type[T], *, corrected: bool = False) -> T:
        """The reply parsed as `schema`; counts how it was read. Raises ValueError."""
        read, reading = read_reply(reply.text, schema)
        self.readings[f"{reading}_after_correction" if corrected else reading] += 1
        return read

    async def text(self, prompt: str, asked: RequestLog, *, rollout: int = 0) -> str:
        """The raw reply to `prompt`, even if it is truncated, empty or a refusal. Raises RejectedRow only if the API withholds it."""
        return (await self._reply((("user", prompt),), None, asked, rollout)).text

    async def _reply(self, messages: tuple[tuple[str, str], ...], schema: type[T] | None, asked: RequestLog, rollout: int) -> Reply:
        """A reply, which is also logged in `asked`. Raises RejectedRow if the API withholds it."""
        request = self.request(messages, schema, rollout)
        reply = self.stored(request, schema, rollout) or await self._in_flight(request.key, lambda: self._request(request))
        asked.request_ids.append(reply.request_id)
        asked.num_prompt_tokens += reply.num_prompt_tokens
        asked.num_completion_tokens += reply.num_completion_tokens
        if (cost := self.budget.cost(reply, request)) is not None:
            asked.cost_usd = (asked.cost_usd or 0.0) + cost
        if reply.finish_reason in ("content_filter", "refusal"):
            raise RejectedRow("refused", reply.text[:200] or reply.finish_reason)
        return reply

    def request(self, messages: tuple[tuple[str, str], ...], schema: type[BaseModel] | None, rollout: int) -> ChatRequest:
        """A request with its key in the store."""
        # Address, concurrency, tries, timeouts and limits cannot change a complete reply; everything else can.
        frame = _frame_key(self._provider, self.config.model, self.config.temperature, self._optional, schema)
        return ChatRequest(_key(frame, messages, rollout), messages, _json_schema(schema), rollout)

    async def _whole_reply(self, messages: tuple[tuple[str, str], ...], schema: type[T], asked: RequestLog, rollout: int) -> Reply:
        """A reply that may contain an answer. Raises RejectedRow for a refusal, or a truncated or empty reply."""
        reply = await self._reply(messages, schema, asked, rollout)
        if reply.finish_reason == "length":
            raise self._truncated(reply)
        if reads_as_refusal(reply.text):
            raise RejectedRow("refused", reply.text[:200])
        if not reply.text.strip():
            # Some servers take an answer without its reasoning for reasoning, and some models answer at its end.
            if (answer := ends_with_object(reply.reasoning, schema)) is None:
                raise RejectedRow("empty", f"the endpoint sent no text (finish_reason {reply.finish_reason})")
            return dataclasses.replace(reply, text=answer)
        return reply

    def _truncated(self, reply: Reply) -> RejectedRow:
        if reply.text.strip():
            limit = self.config.key_of("max_tokens")
            return RejectedRow("truncated", f"the reply was cut at {self.config.most_tokens} tokens; raise {limit}")
        allowance = self.config.key_of("reasoning_tokens")
        return RejectedRow(
            "only_reasoning",
            f"all {self.config.most_tokens} tokens went into reasoning before a reply; set {allowance}, such as 4000, or less reasoning "
            "(reasoning_effort, enable_thinking)",
        )

    def stored(self, request: ChatRequest, schema: type[BaseModel] | None, rollout: int) -> Reply | None:
        """The reply in the store, unless it was truncated at a lower limit than the current one."""
        value = self.store.get(request.key)
        if value is None and self.store.has_undigested:  # older keys included the server's addresses
            frame = _frame_key(str(self.config.base_urls), self.config.model, self.config.temperature, self._optional, schema)
            value = self.store.get_undigested(_key(frame, request.messages, rollout))
        if value is None:
            return None
        reply = Reply(*value)
        if reply.finish_reason == "length" and reply.max_tokens < self.config.most_tokens:
            return None
        self.hits += 1
        return reply

    async def _request(self, request: ChatRequest) -> Reply:
        reserved = await self.budget.reserve(request)
        self.calls += 1
        reply, unseen = None, 0
        try:
            reply = await self.transport.reply(request)
            unseen = reply.unseen_tries
        except RefusedRequest as error:
            unseen = error.unseen_tries
            raise RejectedRow(error.reason, str(error)) from None
        except UnusableEndpoint as error:
            unseen = error.unseen_tries
            raise
        except asyncio.CancelledError:
            unseen = self.budget.cut_off()
            raise
        finally:
            self.budget.settle(reserved, reply, unseen)
        self.models[reply.model] += 1
        self.num_prompt_tokens += reply.num_prompt_tokens
        self.num_completion_tokens += reply.num_completion_tokens
        self.num_reasoning_tokens += reply.num_reasoning_tokens
        return reply

    def summary(self) -> dict[str, Any]:
        """For `metrics.json`: calls, replies from the store, tokens, the models that answered, and the cost."""
        return {
            "calls": self.calls,
            "replies_from_store": self.hits,
            "retries": self.transport.retries,
            "num_prompt_tokens": self.num_prompt_tokens,
            "num_completion_tokens": self.num_completion_tokens,
            "num_reasoning_tokens": self.num_reasoning_tokens,
            "models": dict(self.models),
            "replies_read_as": dict(self.readings),
            **self.budget.summary(),
        }

    async def close(self) -> None:
        """Close the connections and store what was spent."""
        await self.transport.close()
        await self.budget.close()


def _provider(config: EndpointConfig) -> str:
    """The part of an address that belongs to a request's key.

    A provider's models and Azure's deployments differ from models of the same name elsewhere. For other servers the model's name is
    enough, so that a server that has moved to another port or machine is not paid again.
    """
    if config.azure_api_version:
        return "azure"
    protocol = protocol_of(config)
    return protocol.provider if all(url is None or urlsplit(url).hostname == protocol.host for url in config.base_urls) else "by name"


def _key(frame: bytes, messages: tuple[tuple[str, str], ...], rollout: int) -> bytes:
    texts = [(role.encode(), content.encode("utf-8", "surrogatepass")) for role, content in messages]
    # The lengths keep two different requests from having the same bytes.
    return store_key(frame + b"".join(b"%s:%d:%d:%s" % (role, rollout, len(text), text) for role, text in texts))


@cache
def _json_schema(schema: type[BaseModel] | None) -> dict[str, Any] | None:
    return schema.model_json_schema() if schema else None


@cache
def _frame_key(provider: str, model: str, temperature: float, optional: str, schema: type[BaseModel] | None) -> bytes:
    """The key of what all requests for a schema share. Parameters that a recipe does not set are not in it, as in older stores."""
    parts = ("reply", provider, model, temperature, _json_schema(schema))
    return effect_key(*parts) if optional == "{}" else effect_key(*parts, optional)
