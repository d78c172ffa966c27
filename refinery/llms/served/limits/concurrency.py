"""Limits of an endpoint's concurrent requests, found by trial, and of its requests and tokens per minute, as configured."""

import asyncio
import time
from collections import deque

# After a failed attempt to exceed a known limit, the next attempt waits twice as many rounds, up to this many.
_MOST_ROUNDS = 32
# A burst that leaves a smaller fraction of its calls open was refused for its rate, not for its concurrency.
_RATE_LIMITED_SHARE = 1 / 8


class AdaptiveConcurrencyLimit:
    """Limits concurrent calls to one endpoint, between 1 and `most`: additive increase, and a cut to the accepted number (AIMD).

    A burst of refusals counts as one cut: each refusal of a call that entered before the cut lowers the limit to the calls still open,
    and the endpoint can handle the calls left open when the burst is over.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = most
        self.in_flight = 0
        self._known = most  # the last limit that was found to hold; above it the limit grows slowly
        self._rounds, self._successes = 1, 0
        self._cut_at, self._before_cut = float("-inf"), most
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def load(self) -> float:
        """The calls that are open or waiting, per allowed call."""
        return (self.in_flight + len(self._waiting)) / self.limit

    async def enter(self) -> float:
        """Wait for a slot. Returns the time when it was granted, to pass to `leave`."""
        if self.in_flight < self.limit and not self._waiting:
            self.in_flight += 1
            return time.monotonic()
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # the slot was granted at the same moment
                self.in_flight -= 1
                self._admit()
            raise
        return time.monotonic()

    def leave(self, entered: float, *, refused: bool | None) -> None:
        """Give the slot back. `refused` says that the endpoint was overloaded (429, 503, timeout); None means that nothing was sent."""
        self.in_flight -= 1
        if refused:
            self._cut(entered)
        elif refused is not None and self.limit < self.most:
            self._raise()
        self._admit()

    def _cut(self, entered: float) -> None:
        if entered >= self._cut_at:
            self._cut_at, self._before_cut = time.monotonic(), self.limit
            self._rounds = min(self._rounds * 2, _MOST_ROUNDS)
        self.limit = max(1, min(self.limit, self.in_flight))
        by_rate = self.limit < self._before_cut * _RATE_LIMITED_SHARE
        self._known = max(1, self._before_cut // 2) if by_rate else self.limit
        self._successes = 0

    def _raise(self) -> None:
        self._successes += 1
        if self._successes >= (1 if self.limit < self._known else self.limit * self._rounds):
            self.limit, self._successes = self.limit + 1, 0
            if self.limit > self._known + 1:  # a higher limit held for a whole round, so the known one is out of date
                self._known, self._rounds = self.limit, 1

    def _admit(self) -> None:
        while self._waiting and self.in_flight < self.limit:
            place = self._waiting.popleft()
            if not place.done():
                self.in_flight += 1
                place.set_result(None)


class RateLimiter:
    """A limit per minute, first come, first served: of requests, or of tokens reserved before a call and settled after it."""

    def __init__(self, per_minute: float | None) -> None:
        self._per_second = per_minute / 60 if per_minute else None
        # Endpoints refill their limits continuously; at most a second's worth may be taken at once.
        self._most = self._per_second or 0.0
        self._level, self._at = self._most, time.monotonic()
        self._turn = asyncio.Lock()

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return self._per_second is not None

    async def take(self, amount: float) -> None:
        """Wait until `amount` may be spent."""
        if self._per_second is None:
            return
        async with self._turn:
            self._refill()
            # More than a second's worth is taken on credit once the bucket is full.
            while self._level < min(amount, self._most):
                await asyncio.sleep((min(amount, self._most) - self._level) / self._per_second)
                self._refill()
            self._level -= amount

    def settle(self, reserved: float, used: float) -> None:
        """Give back the part that a call did not use."""
        self._level += reserved - used

    def _refill(self) -> None:
        now = time.monotonic()
        if self._per_second is not None:
            self._level = min(self._most, self._level + (now - self._at) * self._per_second)
        self._at = now
