"""A client keeps to the limits that a real server on loopback tells, before the server has to refuse a call."""

import asyncio
import threading
import time
from abc import ABC, abstractmethod

import pytest
from helpers.scripted_server import chat_reply, scripted

from refinery.llms.served.endpoint import EndpointConfig, Reply
from refinery.llms.served.limits.server_quota import Sent, ServerLimits, _Limit
from refinery.llms.served.transport.chat_request import ChatRequest
from refinery.llms.served.transport.client import EndpointClient
from refinery.llms.served.wire.quota_headers import ToldLimit


class Limited(ABC):
    """Answers within its limit, and says what is left; `refused` counts calls beyond it."""

    def __init__(self, left: float) -> None:
        self.left, self.at, self.refused, self.answered, self.lock = left, time.monotonic(), 0, 0, threading.Lock()

    @abstractmethod
    def refill(self, now: float) -> None: ...

    @abstractmethod
    def headers(self) -> dict[str, str]: ...

    def __call__(self, body):
        with self.lock:
            self.refill(time.monotonic())
            taken = self.left >= 1
            self.left -= taken
            self.refused, self.answered = self.refused + (not taken), self.answered + taken
            headers = self.headers()
        return (200, chat_reply("Lyon"), headers) if taken else (429, {"error": {"message": "slow down"}}, headers | {"Retry-After": "1"})


class Bucket(Limited):
    """OpenAI's way: 1,200 requests a minute that come back all the time."""

    def refill(self, now):
        self.left, self.at = min(1200, self.left + (now - self.at) * 20), now

    def headers(self):
        left = int(self.left)
        reset = f"{(1200 - left) // 20}.5s"
        return {"x-ratelimit-limit-requests": "1200", "x-ratelimit-remaining-requests": f"{left}", "x-ratelimit-reset-requests": reset}


class Window(Limited):
    """IETF's way: ten requests, and ten more when the second is over."""

    def refill(self, now):
        if now - self.at >= 1:
            self.left, self.at = 10, now

    def headers(self):
        return {
            "ratelimit-limit": "10",
            "ratelimit-remaining": f"{int(self.left)}",
            "ratelimit-reset": f"{self.at + 1 - time.monotonic():.2f}",
        }


def ask(base_url, count, **values) -> list[Reply]:
    async def run() -> list[Reply]:
        chat = EndpointClient(EndpointConfig(model="m", base_url=base_url, **values))
        first = await chat.reply(ChatRequest(b"", (("user", "first?"),)))
        rest = await asyncio.gather(*(chat.reply(ChatRequest(b"", (("user", f"{n}?"),))) for n in range(count - 1)))
        await chat.close()
        return [first, *rest]

    return asyncio.run(run())


@pytest.mark.parametrize("limited", [Bucket(left=12), Window(left=10)])
def test_calls_wait_for_a_limit_before_it_refuses_them(limited):
    with scripted(limited) as server:
        assert len(ask(server.base_url, 40, calls_in_flight=16)) == 40
    assert (limited.answered, limited.refused) == (40, 0)


def test_a_declared_limit_remains_an_upper_bound():
    with scripted(Bucket(left=1200)) as server:
        began = time.monotonic()
        ask(server.base_url, 14, requests_per_minute=600)
    assert time.monotonic() - began >= 0.25  # ten a second at first, then a tenth of a second each


def test_what_is_used_up_holds_all_calls_back_and_not_their_number():
    times = []

    def answer(body):
        times.append(time.monotonic())
        if len(times) == 2:
            return 429, {"error": {"message": "slow down"}}, {"x-ratelimit-remaining-tokens": "0", "retry-after-ms": "700"}
        return 200, chat_reply("Lyon")

    async def run(base_url):
        chat = EndpointClient(EndpointConfig(model="m", base_url=base_url, calls_in_flight=4))
        for _ in range(2):
            await asyncio.gather(*(chat.reply(ChatRequest(b"", (("user", "a?"),))) for _ in range(1)))
        limit = chat._servers[0].gate.limit
        await chat.close()
        return limit

    with scripted(answer) as server:
        assert asyncio.run(run(server.base_url)) == 4
    assert times[2] - times[1] >= 0.6


def sent(taken: float) -> Sent:
    return Sent(time.monotonic(), {"requests": 1}, {"requests": taken})


def limit_of(**told) -> _Limit:
    limit = _Limit("requests")
    limit.update(ToldLimit("requests", **told), sent(10))
    return limit


def wait_seconds(limit: _Limit, amount: float, taken: float) -> float:
    return limit.wait_seconds({"requests": amount}, {"requests": taken}, {"requests": taken}, time.monotonic())


@pytest.mark.parametrize(
    ("told", "taken", "seconds"),
    [
        ({"remaining": 5, "limit": 60, "reset_seconds": 55.0}, 14, 0),
        ({"remaining": 5, "limit": 60, "reset_seconds": 55.0}, 15, 1),  # one a second
        ({"remaining": 0, "limit": 60}, 10, 1),  # a minute, where nothing is said
        ({"remaining": 0, "limit": 60, "reset_seconds": 1.0}, 10, 1),  # too short to tell more
        ({"remaining": 0, "limit": 60, "period_seconds": 1.0}, 10, 1 / 60),
        ({"remaining": 0, "limit": 100, "reset_seconds": 10.0}, 10, 0.1),
        ({"remaining": 0, "limit": 14_400, "reset_seconds": 86_000.0}, 10, 0),  # of a day: left to the server
        ({"remaining": 1, "limit": 9, "reset_seconds": 20.0, "refills": False}, 10, 0),
        ({"remaining": 1, "limit": 9, "reset_seconds": 20.0, "refills": False}, 11, 20),
        ({"remaining": 0, "limit": 9, "reset_seconds": 3600.0, "refills": False}, 11, 0),
    ],
)
def test_a_call_waits_until_there_is_room_for_it(told, taken, seconds):
    assert wait_seconds(limit_of(**told), 1, taken) == pytest.approx(seconds, abs=0.05)


def test_a_request_larger_than_the_limit_waits_for_all_of_it():
    assert wait_seconds(limit_of(remaining=0, limit=60), 1000, 10) == pytest.approx(60, abs=0.1)


def test_what_is_left_may_be_meant_for_a_request_that_is_on_its_way():
    limits, request = ServerLimits("a server", max_tokens=500), ChatRequest(b"", (("user", "Who?"),))
    told = {"ratelimit-limit": "9", "ratelimit-remaining": "1", "ratelimit-reset": "50"}

    async def overtaken() -> float:
        _, second = await limits.take(request), await limits.take(request)
        limits.told(told, second, refused=False, retry_after_seconds=0)
        return limits._wait_seconds({"requests": 1})

    assert asyncio.run(overtaken()) > 40


def test_an_older_response_does_not_replace_a_newer_one():
    limit, before = _Limit("requests"), sent(1)
    limit.update(ToldLimit("requests", 0, 60), sent(2))
    limit.update(ToldLimit("requests", 59, 60), before)
    assert wait_seconds(limit, 1, 2) > 0.9


@pytest.mark.parametrize(("headers", "taken"), [({"anthropic-ratelimit-output-tokens-": "80"}, 0), ({}, 0)])
def test_a_server_that_tells_nothing_is_never_waited_for(headers, taken):
    limits = ServerLimits("a server", max_tokens=500)
    assert not limits.told(headers, Sent(0.0, {}, {}), refused=False, retry_after_seconds=9)
    assert limits._wait_seconds({"requests": 1}) == taken


def test_output_tokens_are_expected_as_in_the_replies_so_far():
    limits = ServerLimits("a server", max_tokens=500)
    told = {"anthropic-ratelimit-output-tokens-limit": "1000", "anthropic-ratelimit-output-tokens-remaining": "1000"}
    limits.told(told, Sent(time.monotonic(), {}, {}), refused=False, retry_after_seconds=0)
    request = ChatRequest(b"", (("user", "Who?"),))
    assert limits._amounts(request)["output-tokens"] == 500
    limits.answered(Reply("Lyon", "stop", "r", 9, 20))
    assert limits._amounts(request)["output-tokens"] == 20
