"""Send chat or completion requests to endpoints: one request, its tries, and their counts.

It knows nothing of labels, stores or money. `responses.py` says what a response means, `outage.py` when a server is out.
Requests are posted with aiohttp, which takes a fifth of the CPU time per request of the `openai` client.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from refinery.llms.served.endpoint import EndpointConfig, EndpointRequest, RefusedRequest, Reply, UnusableEndpoint
from refinery.llms.served.limits.concurrency import RateLimiter
from refinery.llms.served.protocols.base import protocol_of
from refinery.llms.served.transport.http import HttpSession
from refinery.llms.served.transport.server import Server, Tries
from refinery.llms.served.wire.responses import RetryableFault
from refinery.runtime.observe import telemetry

logger = logging.getLogger(__name__)

# Event loop turns from the release of a place until the next request is on the wire: the waiting call wakes, and aiohttp writes its body.
_TURNS_TO_SEND = 2
# A request that may have failed for the last time waits at least this long, so that others can show whether the server is out.
_SECONDS_TO_TELL = 0.25
# How often a call checks whether another server is back.
_LOOK_SECONDS = 1.0

R = TypeVar("R", bound=Reply)


class EndpointClient:
    """Sends requests to the least loaded of its servers, each with its own concurrency limit. `retries` counts repeated tries.

    `persist` is awaited with a request and its reply before the place is given to another call, so that at most `calls_in_flight` replies
    are paid for but not yet stored. `admit` is awaited before each try with the request and its number of tries that may be charged
    without an answer. An error that it raises ends the request.
    """

    def __init__(
        self,
        config: EndpointConfig,
        persist: Callable[[Any, Any], Awaitable[None]] | None = None,
        admit: Callable[[Any, int], Awaitable[None]] | None = None,
    ) -> None:
        self.config = config
        self._persist, self._admit = persist, admit
        self._provider = protocol_of(config).provider or config.protocol
        self.retries = 0
        self._http = HttpSession()
        self._servers = [Server(config, base_url, self._http) for base_url in config.base_urls]
        self._requests, self._tokens = RateLimiter(config.requests_per_minute), RateLimiter(config.tokens_per_minute)
        self._answered_at, self._told_of_loading = float("-inf"), False

    @property
    def in_flight(self) -> int:
        """Requests open now."""
        return sum(server.gate.in_flight for server in self._servers)

    async def reply(self, request: EndpointRequest[R]) -> R:
        """One reply. Raises RefusedRequest when the request itself is at fault, UnusableEndpoint when the endpoint does not answer."""
        operation = "text_completion" if request.path(self.config) == "/completions" else "chat"
        model = getattr(request, "model", self.config.model)  # an adapter's, by completions
        reply = await telemetry.call(operation, self._provider, model, self._answered(request), _tokens)
        # Let the calls that wait for this place send first: processing this reply, or several that arrive together, would delay them.
        for _ in range(_TURNS_TO_SEND):
            await asyncio.sleep(0)
        return reply

    async def _answered(self, request: EndpointRequest[R]) -> R:
        tries = Tries(self.config.deadline_seconds)
        reserved = request.likely_prompt_tokens() + self.config.most_tokens if self._tokens.limited else 0.0
        await self._requests.take(1)
        await self._tokens.take(reserved)
        while True:
            server, entered = await self._enter(tries)
            tries.started, fault = time.monotonic(), None
            try:
                if self._admit is not None:
                    await self._admit(request, tries.unseen)
                reply = await server.send(request, tries)
                self._tokens.settle(reserved, reply.num_prompt_tokens + reply.num_completion_tokens)
                self._answered_at = time.monotonic()
                if self._persist is not None:
                    await self._persist(request, reply)
                return reply
            except RetryableFault as error:
                fault = error
            except RefusedRequest as error:
                error.unseen_tries += tries.unseen
                raise
            except UnusableEndpoint as error:
                error.unseen_tries = tries.unseen
                self._go_on_without(server, error)
            finally:
                server.gate.leave(entered, refused=None if fault is not None and fault.paced else fault is not None and fault.too_busy)
            self.retries += 1
            if fault is not None:
                await self._wait_after(fault, server, tries)
                await self._requests.take(1)

    async def _enter(self, tries: Tries) -> tuple[Server, float]:
        """A place at the least loaded server that is not out. Raises UnusableEndpoint when all servers have been out for too long."""
        while True:
            server = min((one for one in self._servers if not one.refusal), key=Server.rank)
            if self._pauses(server):
                left = max(one.outage.patience_left(self.config.outage_patience_seconds) for one in self._servers if not one.refusal)
                if left <= 0:
                    raise UnusableEndpoint(server.out_too_long(), unseen_tries=tries.unseen)
                await server.outage.wait(left if len(self._servers) == 1 else min(left, _LOOK_SECONDS))
                continue
            entered = await server.gate.enter()
            if not server.refusal and not self._pauses(server) and not (server.outage.open and self._others_answer()):
                return server, entered
            server.gate.leave(entered, refused=None)  # the server went out while this call waited

    def _pauses(self, server: Server) -> bool:
        """Whether calls wait for the server. They never wait for an endpoint that has not answered yet: its address or key may be wrong."""
        return server.outage.open and self._has_answered and not self._others_answer()

    @property
    def _has_answered(self) -> bool:
        return self._answered_at > float("-inf")

    def _others_answer(self) -> bool:
        return any(not one.refusal and not one.outage.open for one in self._servers)

    def _go_on_without(self, server: Server, error: UnusableEndpoint) -> None:
        """Stop using a server that refuses all requests, if other servers remain. Raises the error otherwise."""
        if all(one.refusal for one in self._servers if one is not server):
            raise error
        if not server.refusal:
            logger.warning("%s The other servers continue.", error)
        server.refusal = str(error)

    async def _wait_after(self, fault: RetryableFault, server: Server, tries: Tries) -> None:
        """Wait until the request may be sent again. Raises RefusedRequest or UnusableEndpoint when it must not be.

        A failure of the server, which other requests shared, does not count against this request.
        """
        if fault.loading and not self._told_of_loading:
            self._told_of_loading = True
            logger.warning("endpoint %s is loading its model: waiting for it", server.base)
        tries.tries += 1
        tries.unseen += fault.unseen
        if not fault.throttled and (self._has_answered or len(self._servers) > 1):
            server.outage.failed(fault.message)
        may_be_last = tries.failures + 1 >= self.config.max_tries and fault.counts
        left = tries.left - (time.monotonic() - tries.started)
        await asyncio.sleep(max(_SECONDS_TO_TELL, 0.0 if may_be_last else min(fault.wait_seconds(tries.tries), left)))
        if self._has_answered and await server.outage.began_since(tries.started):
            return
        tries.failures += fault.counts
        tries.left -= time.monotonic() - tries.started
        if tries.failures < self.config.max_tries and tries.left > 0:
            return
        if self._answered_at > tries.began:  # others were answered meanwhile, so the fault is this request's
            raise RefusedRequest(fault.message, reason="no_reply", unseen_tries=tries.unseen)
        if fault.throttled or not (fault.connected or self._has_answered):
            raise UnusableEndpoint(server.unusable(fault.message, fault.status), unseen_tries=tries.unseen)
        server.outage.suspect()
        if not await server.outage.began_since(tries.started) and fault.connected:  # a probe was answered
            raise RefusedRequest(fault.message, reason="no_reply", unseen_tries=tries.unseen)
        if not self._has_answered:
            raise UnusableEndpoint(server.unusable(fault.message, fault.status), unseen_tries=tries.unseen)
        tries.failures, tries.left = 0, self.config.deadline_seconds

    async def close(self) -> None:
        """Close the connections and stop probing."""
        for server in self._servers:
            server.outage.stop()
        await self._http.close()


def _tokens(reply: Reply) -> tuple[int, int]:
    return reply.num_prompt_tokens, reply.num_completion_tokens
