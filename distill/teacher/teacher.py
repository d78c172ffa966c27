"""The teacher: typed replies from a chat endpoint, each of which is stored before a row uses it.

A reply is looked up under everything that can change it, and requested if it is not in the store. It is parsed, repaired if only its
punctuation is wrong, and otherwise requested once more with the error shown. If that fails too, the row is rejected with a reason.
"""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from refinery.errors import LLMError
from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest, Reply, UnusableEndpoint
from refinery.llms.served.paid.budget import Budget
from refinery.llms.served.paid.request_key import frame_key, json_schema, label_field, provider_of, request_key
from refinery.llms.served.replies.json_reply import begins_with_object, ends_with_object, read_reply, reads_as_refusal
from refinery.llms.served.transport.chat_request import ChatRequest
from refinery.prompts.render import render_prompt, turns_of
from refinery.runtime.concurrency.single_flight import SingleFlight
from refinery.runtime.files.fingerprint import text_fingerprint
from refinery.stores.base import ReplyStore

T = TypeVar("T", bound=BaseModel)

# Reasons for rejection that may not recur in the next attempt, by name or by the server's status.
_PASSING = re.compile(r"(no_reply|search_failed): |refused: status (402|408|409|429|5\d\d)\b")


class RejectedRow(LLMError):
    """This row cannot be labeled; `metrics.json` counts it under `reason`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail

    @property
    def may_pass(self) -> bool:
        """Whether the next attempt may not meet it: no reply, a failed search, an unpaid bill."""
        return _PASSING.match(str(self)) is not None


@dataclass(slots=True)
class RequestLog:
    """The requests that one row has made to the teacher, for its provenance."""

    request_ids: list[str] = field(default_factory=list)
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    cost_usd: float | None = None
    examples: str | None = None  # the fingerprint of those that were shown
    made_by: dict[str, str] = field(default_factory=dict)  # by role in a run with several teachers, the last one last
    label_probability: float | None = None  # the lowest of its labels, where the teacher reads it


class AnyTeacher(Protocol):
    """What a task asks: one teacher, or one with fallbacks."""

    async def ask(self, prompt: str, schema: type[T], asked: RequestLog, *, rollout: int = 0) -> T:
        """See `Teacher.ask`."""
        ...

    async def text(self, prompt: str, asked: RequestLog, *, rollout: int = 0) -> str:
        """See `Teacher.text`."""
        ...


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


class Teacher:
    """Asks the endpoint and parses its replies; `calls` counts requests that were sent, `hits` those that the store answered.

    `role` names it in a run with several teachers. Once `unusable` is set, it answers only from the store. With `reads_probabilities`, it
    also asks how probable the labels are that it reads.
    """

    def __init__(
        self,
        config: EndpointConfig,
        store: ReplyStore,
        transport: Transport,
        budget: Budget,
        *,
        role: str = "",
        reads_probabilities: bool = False,
    ) -> None:
        self.config, self.store, self.transport, self.budget, self.role = config, store, transport, budget, role
        self.unusable: UnusableEndpoint | None = None
        self._reads_probabilities = reads_probabilities
        self.calls = self.hits = self.num_prompt_tokens = self.num_completion_tokens = self.num_reasoning_tokens = 0
        self.num_cached_tokens = self.num_stored_tokens = 0  # the latter of the replies that the store answered
        self.models: Counter[str] = Counter()
        self.readings: Counter[str] = Counter()  # how replies were read: as requested, repaired, or leniently
        optional = config.optional() | ({"logprobs": True} if reads_probabilities else {})
        self._provider, self._optional = provider_of(config), json.dumps(optional, sort_keys=True)
        self._in_flight: SingleFlight[bytes, Reply] = SingleFlight()

    async def ask(self, prompt: str, schema: type[T], asked: RequestLog, *, rollout: int = 0) -> T:
        """The reply to `prompt` parsed as `schema`; each `rollout` is a separate sample.

        Raises RejectedRow if there is no usable reply, UnusableEndpoint and BudgetExhausted if the run cannot continue.
        """
        messages = turns_of(prompt)
        asked.examples = text_fingerprint(text for _, text in messages[:-1]) if len(messages) > 1 else None
        reply = await self._whole_reply(messages, schema, asked, rollout)
        try:
            return self._read(reply, schema, asked)
        except ValueError as error:
            fault = str(error)
        correction = render_prompt("teacher_correction", fault=fault)
        reply = await self._whole_reply((*messages, ("assistant", reply.text), ("user", correction)), schema, asked, rollout)
        try:
            return self._read(reply, schema, asked, corrected=True)
        except ValueError as error:
            raise RejectedRow("malformed", f"{error}; reply: {reply.text[:200]!r}") from None

    def _read(self, reply: Reply, schema: type[T], asked: RequestLog, *, corrected: bool = False) -> T:
        """The reply parsed as `schema`; counts how it was read. Raises ValueError."""
        read, reading = read_reply(reply.text, schema)
        self.readings[f"{reading}_after_correction" if corrected else reading] += 1
        self._sign(asked)
        if reply.label_probability is not None:
            asked.label_probability = min(reply.label_probability, 1.0 if asked.label_probability is None else asked.label_probability)
        return read

    def _sign(self, asked: RequestLog) -> None:
        """Record in a run with several teachers that this one made the row, or its last part."""
        if self.role:
            asked.made_by.pop(self.role, None)
            asked.made_by[self.role] = self.config.model

    async def text(self, prompt: str, asked: RequestLog, *, rollout: int = 0) -> str:
        """The raw reply to `prompt`, even if it is truncated, empty or a refusal. Raises RejectedRow only if the API withholds it."""
        reply = await self._reply((("user", prompt),), None, asked, rollout)
        self._sign(asked)
        return reply.text

    async def _reply(self, messages: tuple[tuple[str, str], ...], schema: type[T] | None, asked: RequestLog, rollout: int) -> Reply:
        """A reply, which is also logged in `asked`. Raises RejectedRow if the API withholds it."""
        request = self.request(messages, schema, rollout)
        reply = self.stored(request, schema, rollout) or await self._in_flight(request.key, lambda: self._request(request))
        asked.request_ids.append(reply.request_id)
        asked.num_prompt_tokens += reply.num_prompt_tokens
        asked.num_completion_tokens += reply.num_completion_tokens
        cost, earlier = self.budget.cost(reply, request), asked.cost_usd if len(asked.request_ids) > 1 else 0.0
        asked.cost_usd = None if cost is None or earlier is None else earlier + cost
        if reply.finish_reason in ("content_filter", "refusal"):
            raise RejectedRow("refused", reply.text[:200] or reply.finish_reason)
        return reply

    def request(self, messages: tuple[tuple[str, str], ...], schema: type[BaseModel] | None, rollout: int) -> ChatRequest:
        """A request with its key in the store."""
        # Address, concurrency, tries, timeouts and limits cannot change a complete reply; everything else can.
        frame = frame_key(self._provider, self.config.model, self.config.temperature, self._optional, schema)
        label = label_field(schema) if self._reads_probabilities else None
        return ChatRequest(request_key(frame, messages, rollout), messages, json_schema(schema), rollout, label)

    async def _whole_reply(self, messages: tuple[tuple[str, str], ...], schema: type[T], asked: RequestLog, rollout: int) -> Reply:
        """A reply that may contain an answer. Raises RejectedRow for a refusal, or a truncated or empty reply."""
        reply = await self._reply(messages, schema, asked, rollout)
        if reply.finish_reason == "length":
            if (whole := begins_with_object(reply.text, schema)) is None:
                raise self._truncated(reply)
            return dataclasses.replace(reply, text=whole)
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
        """The reply in the store, unless it was truncated at a lower limit than the current one, in the middle of its answer."""
        value = self.store.get(request.key)
        if value is None and self.store.has_undigested:  # older keys included the server's addresses
            frame = frame_key(str(self.config.base_urls), self.config.model, self.config.temperature, self._optional, schema)
            value = self.store.get_undigested(request_key(frame, request.messages, rollout))
        if value is None:
            return None
        reply = Reply.of_stored(value)
        was_cut = reply.finish_reason == "length" and (schema is None or begins_with_object(reply.text, schema) is None)
        if was_cut and reply.max_tokens < self.config.most_tokens:
            return None
        self.hits += 1
        self.num_stored_tokens += reply.num_prompt_tokens + reply.num_completion_tokens
        self.budget.count_cached(reply)
        return reply

    async def _request(self, request: ChatRequest) -> Reply:
        if self.unusable is not None:
            raise UnusableEndpoint(str(self.unusable))
        reserved = await self.budget.reserve(request)
        self.calls += 1
        try:
            reply = await self.budget.settled(reserved, self.transport.reply(request))
        except RefusedRequest as error:
            raise RejectedRow(error.reason, str(error)) from None
        self.models[reply.model] += 1
        self.num_prompt_tokens += reply.num_prompt_tokens
        self.num_completion_tokens += reply.num_completion_tokens
        self.num_reasoning_tokens += reply.num_reasoning_tokens
        self.num_cached_tokens += reply.num_cached_tokens
        self.budget.count_cached(reply)
        return reply

    def summary(self) -> dict[str, Any]:
        """For `metrics.json`: calls, replies from the store, tokens of both, the models that answered, and the cost."""
        return {
            "calls": self.calls,
            "replies_from_store": self.hits,
            "retries": self.transport.retries,
            "num_prompt_tokens": self.num_prompt_tokens,
            "num_completion_tokens": self.num_completion_tokens,
            "num_reasoning_tokens": self.num_reasoning_tokens,
            "num_cached_tokens": self.num_cached_tokens,
            "num_stored_tokens": self.num_stored_tokens,
            "models": dict(self.models),
            "replies_read_as": dict(self.readings),
            **self.budget.summary(),
        }

    async def close(self) -> None:
        """Close the connections and store what was spent."""
        await self.transport.close()
        await self.budget.close()
