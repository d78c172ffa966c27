"""Wait before a request would exceed a server's limits, which its responses report, instead of after it has refused one."""

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from refinery.llms.served.endpoint import EndpointRequest, Reply
from refinery.llms.served.wire.quota_headers import ToldLimit, read_limits

logger = logging.getLogger(__name__)

# The periods of limits that refill all the time; a limit for longer than a minute is left to the server's refusals.
_PERIODS = (1.0, 10.0, 60.0, 3600.0, 86_400.0)
_LONGEST_SECONDS = 60.0
# Shorter times until the reset are rounded by many servers, so no period is read from them.
_READABLE_SECONDS = 2.0
# A waiting call checks again this often, because other responses may report new values.
_LOOK_SECONDS = 1.0
_WORTH_TELLING_SECONDS = 1.0
# A request that was sent this long ago has reached the server and was counted there, whether it has ended or not.
_ARRIVES_SECONDS = 1.0


_Amounts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Sent:
    """A request's time, its amounts, and by unit the total that its server has surely counted when it answers, this request included.

    Requests that are sent at almost the same time may arrive in another order, so this one's answer may come before they are counted.
    """

    at: float
    amounts: _Amounts
    counted: _Amounts
    number: int = 0


class ServerLimits:
    """The limits of one server, learned from its responses. Before the first response, requests do not wait."""

    def __init__(self, server: str, max_tokens: int) -> None:
        self._server, self._max_tokens = server, max_tokens
        self._limits: dict[str, _Limit] = {}
        self._taken: defaultdict[str, float] = defaultdict(float)
        self._arriving: dict[int, Sent] = {}  # in the order in which they were sent
        self._uncounted: defaultdict[str, float] = defaultdict(float)  # the sum over those
        self._numbers = count()
        self._replies, self._written = 0, 0  # replies and the tokens in them
        self._held_until = float("-inf")
        self._turn, self._told = asyncio.Lock(), False

    async def take(self, request: EndpointRequest[Any]) -> Sent:
        """Wait until the limits leave room for a request, and count it."""
        amounts = self._amounts(request)
        if self._wait_seconds(amounts) > 0 or self._turn.locked():
            async with self._turn:  # first come, first served
                while (seconds := self._wait_seconds(amounts)) > 0:
                    self._tell(seconds)
                    await asyncio.sleep(min(seconds, _LOOK_SECONDS))
        _add(self._taken, amounts)
        sent = Sent(time.monotonic(), amounts, self._counted(), next(self._numbers))
        self._arriving[sent.number] = sent
        _add(self._uncounted, amounts)
        return sent

    def _counted(self) -> _Amounts:
        """The amounts taken, without requests that may not have arrived yet."""
        sent_before = time.monotonic() - _ARRIVES_SECONDS
        while self._arriving and (oldest := next(iter(self._arriving.values()))).at < sent_before:
            self._has_arrived(oldest)
        return {unit: taken - self._uncounted[unit] for unit, taken in self._taken.items()}

    def _has_arrived(self, sent: Sent) -> None:
        if self._arriving.pop(sent.number, None):
            _add(self._uncounted, {unit: -amount for unit, amount in sent.amounts.items()})

    def _amounts(self, request: EndpointRequest[Any]) -> dict[str, float]:
        """The amount that a request takes of each known limit. Servers count `max_tokens` as written when the request arrives."""
        amounts = {"requests": 1.0}
        if any(limit.unit != "requests" for limit in self._limits.values()):
            prompt = request.likely_prompt_tokens()
            written = self._written / self._replies if self._replies else self._max_tokens
            amounts |= {"tokens": prompt + self._max_tokens, "input-tokens": prompt, "output-tokens": written}
        return amounts

    def _wait_seconds(self, amounts: _Amounts) -> float:
        now = time.monotonic()
        counted = self._counted() if self._limits else {}
        waits = [limit.wait_seconds(amounts, self._taken, counted, now) for limit in self._limits.values()]
        return max(self._held_until - now, 0.0, *waits)

    def ended(self, sent: Sent) -> None:
        """Count a request that was answered or has failed."""
        self._has_arrived(sent)

    def answered(self, reply: Reply) -> None:
        """Count a reply's tokens, for the estimate of later replies."""
        self._replies += 1
        self._written += reply.num_completion_tokens

    def told(self, headers: Mapping[str, str], sent: Sent, *, refused: bool, retry_after_seconds: float) -> bool:
        """Learn from a response to what was `sent`. Returns whether it `refused` the request because a limit is used up."""
        told = read_limits(headers)
        for kind, limit in told.items():
            if limit.limit is not None:
                self._limits.setdefault(kind, _Limit(limit.unit)).update(limit, sent)
        used_up = refused and any(limit.remaining < 1 for limit in told.values())
        if used_up:
            self._held_until = max(self._held_until, time.monotonic() + retry_after_seconds)
        return used_up

    def _tell(self, seconds: float) -> None:
        if seconds < _WORTH_TELLING_SECONDS or self._told:
            return
        self._told = True
        limits = ", ".join(f"{limit.size:,.0f} {kind or 'requests'}" for kind, limit in self._limits.items())
        logger.info("%s tells its limits (%s), and calls now wait for them.", self._server, limits)


def _add(counts: defaultdict[str, float], amounts: _Amounts) -> None:
    for unit, amount in amounts.items():
        counts[unit] += amount


class _Limit:
    """One limit: the amount left when the latest request was counted, and how it refills."""

    def __init__(self, unit: str) -> None:
        self.unit, self.size = unit, math.inf
        self._left, self._taken_then, self._as_of = math.inf, 0.0, float("-inf")
        self._refills, self._period, self._window_ends, self._window_seconds = True, _LONGEST_SECONDS, math.inf, 0.0

    def update(self, told: ToldLimit, sent: Sent) -> None:
        """Update from a response, unless it is older than the known state."""
        if sent.at < self._as_of or told.limit is None:
            return
        self.size, self._refills = told.limit, told.refills
        self._left, self._taken_then, self._as_of = told.remaining, sent.counted.get(self.unit, 0.0), sent.at
        self._period = told.period_seconds or _period(told) or self._period
        if not told.refills and told.reset_seconds is not None:
            self._window_ends = time.monotonic() + told.reset_seconds
            self._window_seconds = max(self._window_seconds, told.reset_seconds)

    def wait_seconds(self, amounts: _Amounts, taken: _Amounts, counted: _Amounts, now: float) -> float:
        """Seconds until `amounts` are available, given all that was `taken` and the part surely `counted` by the server.

        A request that is larger than the limit waits until the limit is full.
        """
        if self._period > _LONGEST_SECONDS or self._window_seconds > _LONGEST_SECONDS:
            return 0.0
        amount = min(amounts[self.unit], self.size)
        if not self._refills:
            self._end_window(counted, now)
            return 0.0 if self._left - (taken[self.unit] - self._taken_then) >= amount else max(self._window_ends - now, 0.0)
        per_second = self.size / self._period
        left = min(self.size, self._left - (taken[self.unit] - self._taken_then) + (now - self._as_of) * per_second)
        return max(amount - left, 0.0) / per_second

    def _end_window(self, counted: _Amounts, now: float) -> None:
        if now >= self._window_ends:
            # Requests that may not have arrived yet may be counted in the new window.
            self._left, self._taken_then = self.size, counted.get(self.unit, 0.0)
            self._window_ends = now + max(self._window_seconds, _LOOK_SECONDS)


def _period(told: ToldLimit) -> float | None:
    """The period in which a continuously refilling limit refills completely; None if the response does not show it."""
    if not told.refills or told.limit is None or (told.reset_seconds or 0.0) < _READABLE_SECONDS or told.remaining >= told.limit:
        return None
    seconds = (told.reset_seconds or 0.0) * told.limit / (told.limit - told.remaining)
    return min(_PERIODS, key=lambda period: abs(math.log(period / seconds)))
