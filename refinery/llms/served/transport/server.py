"""One server of an endpoint: sends requests to it, tracks its state, and explains why it cannot be used."""

import asyncio
import json
import logging
import os
import re
import time
from typing import Any, NamedTuple, TypeVar

from refinery.errors import LLMError
from refinery.llms.served.endpoint import EndpointConfig, EndpointRequest, RefusedRequest, Reply, UnusableEndpoint
from refinery.llms.served.limits.concurrency import AdaptiveConcurrencyLimit
from refinery.llms.served.limits.server_quota import Sent, ServerLimits
from refinery.llms.served.protocols.base import api_key, protocol_of
from refinery.llms.served.transport.chat_request import TINY_CHAT
from refinery.llms.served.transport.circuit_breaker import Outage
from refinery.llms.served.transport.http import HttpSession
from refinery.llms.served.transport.refused_parameters import RefusedParameters
from refinery.llms.served.wire.responses import Response, RetryableFault, is_about_schemas, is_about_written, read_reply, without_key

logger = logging.getLogger(__name__)

_PROBE_SECONDS = 20.0
# After this many replies without a schema, following unexplained errors with one, all requests leave it out.
_SCHEMA_FAILURES = 3
_ID = re.compile(r"[\w-]*\d[\w-]*")
_VERSION_IN_PATH = re.compile(r"/v\d")

R = TypeVar("R", bound=Reply)


class _Tiny(NamedTuple):
    """How a tiny request ended that was sent at a moment: with an error, or with an answer."""

    sent_at: float
    error: Exception | None


class Tries:
    """The tries of one request. `failures` are its own failures, `unseen` the tries that may be charged without an answer."""

    def __init__(self, deadline_seconds: float) -> None:
        self.began = self.started = time.monotonic()
        self.left = deadline_seconds
        self.tries = self.failures = self.unseen = self.timeouts = 0
        self.without_schema = False


class Server:
    """One address, with its headers and its state. `refusal` is why it refuses all requests, or empty."""

    def __init__(self, config: EndpointConfig, base_url: str | None, http: HttpSession) -> None:
        self.config = config
        self.gate = AdaptiveConcurrencyLimit(config.calls_in_flight)
        self._address = protocol_of(config).address(config, base_url)
        self.base = self._address.base
        self.outage = Outage(f"endpoint {self.base}", self._is_up)
        self.refusal = ""
        self.limits = ServerLimits(f"endpoint {self.base}", config.most_tokens)
        self._http, self._key = http, api_key(config)
        self._tiny: EndpointRequest[Any] = TINY_CHAT  # to the last used route
        self._asking_tiny, self._last_tiny = asyncio.Lock(), _Tiny(float("-inf"), None)
        self._refused = RefusedParameters(f"endpoint {self.base} (model '{config.model}')")
        self._answered_sent_at = float("-inf")  # when the last request was sent that was answered
        self._sends_schemas, self._schema_failures = protocol_of(config).takes_schemas, 0

    def rank(self) -> tuple[bool, float]:
        """The sort key: servers that answer first, then the least loaded."""
        return self.outage.open, self.gate.load

    async def send(self, request: EndpointRequest[R], tries: Tries) -> R:
        """One try, once the server's limits leave room for it. Raises RetryableFault, RefusedRequest or UnusableEndpoint."""
        self._tiny = request.tiny(self.config)
        sent = await self.limits.take(request)
        tries.started = time.monotonic()
        try:
            return await self._send(request, tries, sent)
        except RetryableFault as fault:
            if fault.timed_out:  # the next try gets more time: this one was written, and will be charged
                tries.timeouts += 1
                fault.message += f"; raise {self.config.key_of('timeout_seconds')} (now {self.config.timeout_seconds:g})"
            raise
        finally:
            self.limits.ended(sent)

    async def _send(self, request: EndpointRequest[R], tries: Tries, sent: Sent) -> R:
        seconds = min(self.config.timeout_seconds * 2**tries.timeouts, tries.left)
        # Decided for each request, because another may find out meanwhile that the server does not support schemas.
        with_schema, named = request.json_schema is not None and self._sends_schemas and not tries.without_schema, False
        while True:
            body = self._refused.fit(request.body(self.config, send_schema=with_schema))
            response = without_key(await self._post(request, body, seconds), self._key)
            if with_schema and is_about_written(response.status, response.content):
                with_schema = False
            elif with_schema and is_about_schemas(response.status, response.content):
                with_schema, named = False, True
            elif response.status < 300 or not self._refused.learn(response.status, response.content, body.keys()):
                break
        try:
            reply = request.parse(read_reply(response), self.config, unseen_tries=tries.unseen)
        except RetryableFault as fault:
            fault.paced = self.limits.told(response.headers, sent, refused=fault.throttled, retry_after_seconds=fault.retry_after_seconds)
            tries.without_schema = with_schema and fault.status == 500  # a failing guided-decoding backend may not say so
            raise
        except (RefusedRequest, UnusableEndpoint) as error:
            self.outage.answered()
            raise await self.verdict(error, time.monotonic()) from None
        self._answered_sent_at = max(self._answered_sent_at, tries.started)
        self.outage.answered()
        self.limits.told(response.headers, sent, refused=False, retry_after_seconds=0.0)
        self.limits.answered(reply)
        if request.json_schema is not None and self._sends_schemas:
            self._note_schema(with_schema, named)
        return reply

    async def verdict(self, error: RefusedRequest | UnusableEndpoint, refused_at: float) -> Exception:
        """The error that a refusal means: RefusedRequest for that of one prompt, UnusableEndpoint if every request is refused now.

        Whatever was answered before, an account may run dry or a key expire, and servers say so by any status. So a tiny request is sent
        after `refused_at`, unless another one is answered. RetryableFault if that does not tell.
        """
        if isinstance(error, RefusedRequest) and error.certain:
            return error
        if isinstance(error, UnusableEndpoint) and error.status != 403:  # with which prompts are moderated, too
            return UnusableEndpoint(self.unusable(str(error), error.status), status=error.status)
        tiny = await self._tiny_error_since(refused_at)
        if isinstance(tiny, RetryableFault):
            return tiny
        if tiny is not None and _refuses_all(tiny, error):
            status = getattr(error, "status", None) or 400
            return UnusableEndpoint(self._unusable_for_all(str(error), status), status=status)
        return error if isinstance(error, RefusedRequest) else RefusedRequest(str(error))

    async def _tiny_error_since(self, moment: float) -> Exception | None:
        """The error of a tiny request that was sent after a moment, or None if that or any other is answered.

        Requests that are refused at the same time share it.
        """
        async with self._asking_tiny:
            if self._answered_sent_at >= moment:
                return None
            if self._last_tiny.sent_at < moment:
                sent_at, error = time.monotonic(), await self._probe(self.config.timeout_seconds)
                if isinstance(error, LLMError):  # once more, because some servers refuse a request at random
                    error = await self._probe(self.config.timeout_seconds)
                self._last_tiny = _Tiny(sent_at, error)
            return None if self._answered_sent_at >= moment else self._last_tiny.error

    def _unusable_for_all(self, refusal: str, status: int) -> str:
        if self._answered_sent_at == float("-inf"):
            return self.unusable(f"it refuses every request in the same way: {refusal}", status)
        end = "" if refusal.endswith((".", "!", "?")) else "."
        return self.unusable(
            f"it has answered before and now refuses every request, even a tiny one: {refusal}{end} The account or the key seems to be "
            "used up. Replies so far are stored: add credit or raise the limit, then --resume."
        )

    def _note_schema(self, taken: bool, named: bool) -> None:
        """Remember whether the server supports schemas, once a reply proves it."""
        self._schema_failures = 0 if taken else self._schema_failures + (_SCHEMA_FAILURES if named else 1)
        if self._schema_failures >= _SCHEMA_FAILURES:
            self._sends_schemas = False
            logger.warning("endpoint %s does not support JSON schemas for its replies; they are written into the prompts.", self.base)

    async def _post(self, request: EndpointRequest[Any], body: dict[str, Any], seconds: float) -> Response:
        url, content = f"{self.base}{request.path(self.config)}{self._address.query}", json.dumps(body).encode()
        try:
            return await self._http.post(url, content, {"Content-Type": "application/json", **self._address.headers}, seconds=seconds)
        except UnusableEndpoint as error:
            raise UnusableEndpoint(self.unusable(str(error))) from None

    async def _is_up(self) -> bool:
        """Whether a tiny request gets any answer, even a refusal."""
        return not isinstance(await self._probe(), RetryableFault)

    async def _probe(self, seconds: float = _PROBE_SECONDS) -> Exception | None:
        """The error of a tiny request, which costs a token or two, or None if it is answered."""
        try:
            body = self._refused.fit(self._tiny.body(self.config, send_schema=False))
            read_reply(without_key(await self._post(self._tiny, body, min(self.config.timeout_seconds, seconds)), self._key))
        except (RetryableFault, LLMError) as error:
            return error
        return None

    def unusable(self, why: str, status: int | None = None) -> str:
        """The message that says which endpoint failed, how, and what to do."""
        end = "" if why.endswith((".", "!", "?")) else "."
        return f"endpoint {self.base} (model '{self.config.model}') cannot be used: {why}{end}{self._remedy(status)}"

    def out_too_long(self) -> str:
        """The message for an outage that lasts too long."""
        return self.unusable(
            f"{self.outage.why} It has not answered for {self.config.outage_patience_seconds:g} s (outage_patience_seconds). "
            "Replies so far are stored: start the server again, then --resume."
        )

    def _remedy(self, status: int | None) -> str:
        key = f"${self.config.api_key_env}"
        if status in (401, 403) and not os.environ.get(self.config.api_key_env):
            return f" {key} is not set: export the key under this name, or name another variable with api_key_env."
        check = f" Check base_url, model and {key}." if status in (200, 400, 401, 403, 404) else ""
        if status in (200, 404) and not self.config.azure_api_version and not _VERSION_IN_PATH.search(self.base):
            check += f" base_url has no /v1: try {self.base}/v1."
        return check


def _refuses_all(tiny: Exception, error: Exception) -> bool:
    """Whether the error of a tiny request shows that another one was not refused for its prompt: the words, or that the key is refused."""
    key_refused = isinstance(tiny, UnusableEndpoint) and tiny.status in (401, 402, 403)
    return key_refused or _without_ids(str(tiny)) == _without_ids(str(error))


def _without_ids(message: str) -> str:
    """An error's message without its numbers and request ids, which differ from request to request."""
    return _ID.sub("#", message.lower())
