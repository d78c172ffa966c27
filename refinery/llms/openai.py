"""Ask OpenAI-compatible endpoints, by chat or for completions: one request, its tries, and what it took.

Knows nothing of labels, stores or money.

The `openai` client names the endpoint, the key, the organisation or Azure; requests are posted with aiohttp, which takes a fifth of the
client's CPU time for each.
"""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from refinery.llms.endpoint import (
    EndpointConfig,
    EndpointRequest,
    RefusedRequest,
    Reply,
    UnusableEndpoint,
    server_address,
)
from refinery.llms.gate import Gate, MinuteBudget

# A failed request waits base * 2^try seconds at most, with full jitter, unless the server says how long (Retry-After).
_BACKOFF_SECONDS, _BACKOFF_CAP_SECONDS = 0.5, 30.0
# Turns of the event loop from a place given back to the next request on the wire: the waiting call wakes, and aiohttp writes its body.
_TURNS_TO_SEND = 2
# An endpoint among several that fails this often in a row is left alone for a while.
_DEAD_AFTER, _DEAD_SECONDS = 3, 30.0
_TOO_BUSY = frozenset((429, 503, 529))

R = TypeVar("R", bound=Reply)


class ChatEndpoint:
    """Sends chats to the least loaded of its servers, each under its own gate; `retries` counts repeated tries.

    `keep` is awaited with a request and its reply before the place is given to another call. What is paid for and not yet kept is thereby
    never more than `calls_in_flight` calls.
    """

    def __init__(self, config: EndpointConfig, keep: Callable[[Any, Any], Awaitable[None]] | None = None) -> None:
        self.config = config
        self._keep = keep
        self.retries = 0
        self._servers = [_Server(config, base_url) for base_url in config.base_urls]
        self._requests, self._tokens = MinuteBudget(config.requests_per_minute), MinuteBudget(config.tokens_per_minute)
        self._answered_at = float("-inf")
        self._session: Any = None

    @property
    def in_flight(self) -> int:
        """Requests open now."""
        return sum(server.gate.in_flight for server in self._servers)

    async def reply(self, request: EndpointRequest[R]) -> R:
        """One reply. Raises RefusedRequest for this request's own fault, UnusableEndpoint when the endpoint does not answer."""
        reply = await self._answered(request)
        # What the caller makes of a reply would hold up the calls that wait for its place; of replies that come together, for all of them.
        for _ in range(_TURNS_TO_SEND):
            await asyncio.sleep(0)
        return reply

    async def _answered(self, request: EndpointRequest[R]) -> R:
        left, failures, unseen, began = self.config.deadline_seconds, 0, 0, time.monotonic()
        reserved = request.likely_prompt_tokens() + self.config.max_tokens if self._tokens.limited else 0.0
        await self._requests.take(1)
        await self._tokens.take(reserved)
        while True:
            server = min(self._servers, key=_Server.rank)
            entered = await server.gate.enter()
            if server.dead and not all(other.dead for other in self._servers):  # it died while this one waited
                server.gate.leave(entered, refused=False)
                continue
            started, problem = time.monotonic(), None
            try:
                reply = await server.send(request, self._open_session(), min(self.config.timeout_seconds, left), unseen)
                self._tokens.settle(reserved, reply.num_prompt_tokens + reply.num_completion_tokens)
                self._answered_at = time.monotonic()
                if self._keep is not None:
                    await self._keep(request, reply)
                return reply
            except _MayPass as error:
                problem = error
            finally:
                server.gate.leave(entered, refused=problem is not None and problem.too_busy)
            failures += not problem.throttled
            unseen += problem.unseen
            wait = problem.wait_seconds(failures)
            left -= time.monotonic() - started + wait
            if failures >= self.config.max_tries or left <= 0:
                if self._answered_at > began:  # others got through meanwhile: it is this request that does not
                    raise RefusedRequest(problem.message, reason="no_reply", unseen_tries=unseen)
                raise UnusableEndpoint(server.unusable(problem.message), unseen)
            self.retries += 1
            await asyncio.sleep(wait)
            await self._requests.take(1)

    def _open_session(self) -> Any:
        if self._session is None:
            import aiohttp

            # The gates bound what is open; a second bound in the pool would queue unseen.
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60), json_serialize=json.dumps)
        return self._session

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


class _MayPass(Exception):
    """A failed try that may be repeated. `unseen` is 1 when it was sent and the answer never came."""

    def __init__(self, message: str, *, status: int | None = None, retry_after: str | None = None, unseen: int = 0) -> None:
        super().__init__(message)
        self.message, self.unseen = message, unseen
        self.throttled = status == 429
        self.too_busy = status in _TOO_BUSY or bool(unseen)
        self._retry_after = retry_after

    def wait_seconds(self, failures: int) -> float:
        """As long as the server asked, or full jitter under a doubling bound."""
        try:
            return float(self._retry_after or "") * random.uniform(1.0, 1.25)  # noqa: S311 - jitter, not a secret
        except ValueError:
            return random.uniform(0, min(_BACKOFF_CAP_SECONDS, _BACKOFF_SECONDS * 2 ** (failures + 1)))  # noqa: S311


class _Server:
    """One address: where to post, with which headers, and how it has behaved."""

    def __init__(self, config: EndpointConfig, base_url: str | None) -> None:
        self.config = config
        self.gate = Gate(config.calls_in_flight)
        self.base, self._query, self.headers = server_address(config, base_url)
        self._send_schema = True
        self._failures, self._dead_until = 0, 0.0

    def rank(self) -> tuple[bool, float]:
        """The living before the dead, the least loaded first."""
        return self.dead, self.gate.load

    @property
    def dead(self) -> bool:
        """Whether it is left alone for now."""
        return self._dead_until > time.monotonic()

    async def send(self, request: EndpointRequest[R], session: Any, seconds: float, unseen: int) -> R:
        """One try. Raises _MayPass, RefusedRequest or UnusableEndpoint."""
        body = request.body(self.config, send_schema=self._send_schema)
        status, headers, content = await self._post(f"{self.base}{request.path}{self._query}", body, session, seconds)
        if status == 200:
            try:
                return request.parse(json.loads(content), max_tokens=self.config.max_tokens, unseen_tries=unseen)
            except ValueError:
                raise _MayPass("the reply is not JSON") from None
        message = _error_message(content)
        if status == 400 and self._send_schema and request.json_schema is not None and _is_about_schemas(message):
            self._send_schema = False  # found out once; from here on the schema stands in the prompt
            return await self.send(request, session, seconds, unseen)
        if status in (408, 409, 429) or status >= 500:
            raise _MayPass(f"status {status}: {message}", status=status, retry_after=headers.get("Retry-After"))
        if status in (401, 403, 404):
            check = f"Check base_url, model and ${self.config.api_key_env}."
            raise UnusableEndpoint(f"{self.unusable(f'status {status}: {message}')} {check}", unseen)
        raise RefusedRequest(f"status {status}: {message}")

    async def _post(self, url: str, body: dict[str, Any], session: Any, seconds: float) -> tuple[int, Any, bytes]:
        import aiohttp

        try:
            async with session.post(
                url, data=json.dumps(body).encode(), headers=self.headers, timeout=aiohttp.ClientTimeout(total=seconds)
            ) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._failures += 1
            if self._failures >= _DEAD_AFTER:
                self._dead_until = time.monotonic() + _DEAD_SECONDS
            if isinstance(error, TimeoutError):
                raise _MayPass(f"no reply within {seconds:.0f} s", unseen=1) from None
            # A connection that broke after the request went out may have been answered, and charged.
            raise _MayPass("Connection error.", unseen=int(not isinstance(error, aiohttp.ClientConnectorError))) from None
        self._failures, self._dead_until = 0, 0.0
        return response.status, response.headers, content

    def unusable(self, why: str) -> str:
        """The line that says which endpoint failed, and how."""
        return f"endpoint {self.base} (model '{self.config.model}') cannot be used: {why}"


def _error_message(content: bytes) -> str:
    """The endpoint's own words, in one line."""
    try:
        error = json.loads(content)["error"]
        text = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        text = content[:200].decode(errors="replace")
    return " ".join(text.split())[:300]


def _is_about_schemas(message: str) -> bool:
    return any(word in message.lower() for word in ("response_format", "json_schema", "guided_json"))
