"""Replies that are paid for only once: each is stored before it is used, and requested, within a budget, only if it is not in the store."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, Self, TypeVar

from refinery.llms.served.endpoint import EndpointConfig, EndpointRequest, Reply
from refinery.llms.served.paid.budget import Budget, PricedRequest
from refinery.llms.served.paid.request_key import frame_key, provider_of
from refinery.llms.served.transport.client import EndpointClient
from refinery.runtime.files.fingerprint import store_key
from refinery.stores.base import ReplyStore

R = TypeVar("R", bound=Reply)
RCo = TypeVar("RCo", bound=Reply, covariant=True)


class StoredRequest(PricedRequest, EndpointRequest[RCo], Protocol[RCo]):
    """A request whose `key` is a hash of all that can change the reply besides the endpoint's configuration."""

    def keyed(self, key: bytes) -> Self:
        """The request with another key."""
        ...

    def read_stored(self, values: list[Any]) -> RCo:
        """The reply that `Reply.stored` gave."""
        ...


def persist_in(store: ReplyStore, enter: Callable[[bytes, Reply], None] | None = None) -> Callable[[PricedRequest, Reply], Awaitable[None]]:
    """A callback that stores a reply, which a transport awaits before it returns the reply; `enter` records its cost with it."""

    async def persist(request: PricedRequest, reply: Reply) -> None:
        if enter is not None:
            enter(request.key, reply)
        await store.put(request.key, reply.stored())

    return persist


class PaidReplies:
    """An endpoint's replies from a store, or else from the endpoint. `calls` counts those that were sent, `hits` those that were stored.

    `worth` is the stored replies' original cost in US dollars; None if the price is unknown.

    Raises BudgetExhausted instead of sending a request that could exceed the budget's cap.
    """

    def __init__(self, config: EndpointConfig, store: ReplyStore, budget: Budget) -> None:
        self._store, self.budget = store, budget
        self._frame = frame_key(provider_of(config), config.model, config.temperature, json.dumps(config.optional(), sort_keys=True), None)
        self._client = EndpointClient(config, persist_in(store, budget.enter), budget.admit)
        self.calls = self.hits = self.num_cached_tokens = 0
        self.worth: float | None = 0.0

    async def reply(self, request: StoredRequest[R]) -> R:
        """One reply. Raises the same errors as `EndpointClient.reply`."""
        limit = request.most_tokens(self.budget.config)
        request = request.keyed(store_key(b"%s%s:%d" % (self._frame, request.key, limit)))
        if (stored := self._store.get(request.key)) is not None:
            self.hits += 1
            reply = request.read_stored(stored)
        else:
            reservation = await self.budget.reserve(request)
            self.calls += 1
            reply = await self.budget.settled(reservation, self._client.reply(request))
            self.num_cached_tokens += reply.num_cached_tokens
        self.budget.count_cached(reply)
        cost = self.budget.cost(reply, request)
        self.worth = None if cost is None or self.worth is None else self.worth + cost
        return reply

    def summary(self) -> dict[str, Any]:
        """For `metrics.json`: calls, replies from the store, cached tokens, and the cost."""
        counts = {"requests": self.calls, "replies_from_store": self.hits, "num_cached_tokens": self.num_cached_tokens}
        return counts | self.budget.summary()

    async def close(self) -> None:
        """Close the connections and store the amount spent."""
        await self._client.close()
        await self.budget.close()
