"""Limits as servers tell them, and ways to a server: redirects, proxies, hosts that are not there."""

import time
from typing import Any

from helpers.scripted_server import Answer, ScriptedServer
from helpers.wild_endpoints.table import GOOD, LABEL, OK, WildEndpoint, at_question, in_turn, refuses, stops

SLOW_DOWN = "Rate limit reached for requests"
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "content": [{"type": "text", "text": LABEL}],
    "usage": {"input_tokens": 9, "output_tokens": 20},
}
ANTHROPIC = {"protocol": "anthropic_messages"}


def openai_limits(limit: str, remaining: str, reset: str) -> dict[str, str]:
    """The headers of OpenAI's limit of requests."""
    return {"x-ratelimit-limit-requests": limit, "x-ratelimit-remaining-requests": remaining, "x-ratelimit-reset-requests": reset}


def anthropic_error(status: int, kind: str, text: str) -> Answer:
    """An error in Anthropic's shape."""
    return status, {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}


def openrouter_limits(body: Any) -> Answer:
    """A reply with OpenRouter's headers, whose reset is in milliseconds since 1970."""
    return *OK, {"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": f"{(time.time() + 0.2) * 1000:.0f}"}


class Moved(ScriptedServer):
    """Redirects to another path of its own, permanently."""

    def respond(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Answer:
        return self.answer(body) if path.startswith("/api") else (308, {}, {"Location": f"/api{path}"})


LIMITS = [
    WildEndpoint(
        "OpenAI's limit is used up, and it says for how long",
        in_turn(OK, (429, {"error": {"message": SLOW_DOWN}}, openai_limits("600", "0", "1m0s") | {"retry-after-ms": "50"})),
        sent=5,
    ),
    WildEndpoint("OpenAI's limit is nearly used up", lambda body: (*OK, openai_limits("6000", "1", "59.99s")), sent=4),
    WildEndpoint("a limit of the day is used up, but not enforced", lambda body: (*OK, openai_limits("14400", "0", "23h59m0s")), sent=4),
    WildEndpoint("a limit without sense", lambda body: (*OK, openai_limits("-1", "nan", "9999-12-31T00:00:00Z")), sent=4),
    WildEndpoint("Azure does not know its limits", lambda body: (*OK, openai_limits("-1", "-1", "0")), sent=4),
    WildEndpoint(
        "a window of IETF's draft is over soon",
        lambda body: (*OK, {"ratelimit-limit": "1", "ratelimit-remaining": "0", "ratelimit-reset": "0.2"}),
        sent=4,
    ),
    WildEndpoint("OpenRouter's window is over soon", openrouter_limits, sent=4),
    WildEndpoint(
        "Anthropic's limits are far",
        lambda body: (200, MESSAGE, {"anthropic-ratelimit-tokens-limit": "80000", "anthropic-ratelimit-tokens-remaining": "79000"}),
        teacher=ANTHROPIC,
        sent=4,
    ),
    WildEndpoint(
        "Anthropic is overloaded for more than a request's tries",
        in_turn(*[anthropic_error(529, "overloaded_error", "Overloaded")] * 2, then=(200, MESSAGE)),
        teacher=ANTHROPIC,
        sent=6,
    ),
    WildEndpoint(
        "Anthropic refuses one prompt",
        at_question(0, anthropic_error(400, "invalid_request_error", "prompt is\ntoo long"), (200, MESSAGE)),
        teacher=ANTHROPIC,
        kept=3,
        paid=4,  # one of them is tiny, and finds out that other prompts are answered
        rejected={"refused": 1},
        says=("status 400: prompt is too long",),
    ),
    WildEndpoint(
        "a quota that is used up is not waited for",
        in_turn(OK, then=refuses(429, "You exceeded your current quota", code="insufficient_quota")),
        kept=1,
        paid=1,
        sent=2,
        code=2,
        says=("You exceeded your current quota", "add credit"),
    ),
    WildEndpoint("a Retry-After without sense", in_turn((*refuses(429, SLOW_DOWN), {"Retry-After": "-nan"})), sent=5),
    WildEndpoint(
        "a server that has moved to another path",
        lambda body: (200, GOOD),
        server_type=Moved,
        sent=4,
        says=("has moved to", "on the same server. Update base_url."),
    ),
    stops(
        "a server that has moved to another host",
        lambda body: (308, {}, {"Location": "https://user:word@elsewhere.test/v1/chat/completions?sig=1"}),
        sent=1,
        says=("it redirects to https://elsewhere.test/v1/chat/completions. Redirects are not followed",),
    ),
    stops(
        "a host that is unknown",
        lambda body: OK,
        teacher={"base_url": "http://no-such-host.invalid/v1"},
        says=("The host 'no-such-host.invalid' is unknown (DNS).",),
    ),
    stops(
        "a host where nobody listens",
        lambda body: OK,
        teacher={"base_url": "http://127.0.0.1:9/v1"},
        says=("Connection refused. Is a server running there?",),
    ),
    stops(
        "a server that speaks no TLS",
        lambda body: OK,
        teacher={"base_url": "https://{host}/v1"},
        says=("The TLS handshake failed", "write http:// in base_url"),
    ),
    stops(
        "a proxy that does not answer",
        lambda body: OK,
        teacher={"base_url": "http://teacher.test/v1"},
        env={"HTTP_PROXY": "http://user:word@127.0.0.1:9"},
        says=("the proxy 127.0.0.1:9 (HTTP_PROXY) does not answer.",),
    ),
    stops(
        "a proxy of another kind",
        lambda body: OK,
        teacher={"base_url": "http://teacher.test/v1"},
        env={"ALL_PROXY": "socks5://user:word@127.0.0.1:9"},
        says=("ALL_PROXY names no HTTP proxy.",),
    ),
    WildEndpoint("a proxy is not asked for this machine", lambda body: OK, env={"ALL_PROXY": "http://127.0.0.1:9"}),
]
