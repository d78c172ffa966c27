"""A circuit breaker: while a server is out, it pauses requests and probes the server until it answers again."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

# After this many consecutive failures, of any requests, a probe finds out whether the server is out.
_SUSPECT_AFTER = 3
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0


class Outage:
    """One server's breaker. It opens after failures in a row and closes when a probe or a request is answered.

    `probe` sends a tiny request and says whether it was answered. So no row is wasted on finding out, and one faulty request is
    distinguished from a server that fails all requests.
    """

    def __init__(self, server: str, probe: Callable[[], Awaitable[bool]]) -> None:
        self.why = ""
        self._server, self._probe = server, probe
        self._failures, self._failing_since = 0, 0.0
        self._confirmed_at = float("-inf")
        self._watching: asyncio.Task[None] | None = None
        self._told = False
        self._probed, self._over = asyncio.Event(), asyncio.Event()

    @property
    def open(self) -> bool:
        """Whether only probes should be sent now."""
        return self._watching is not None

    def failed(self, why: str) -> None:
        """Record a request that was not answered."""
        if not self._failures:
            self._failing_since = time.monotonic()
        self._failures, self.why = self._failures + 1, why
        if self._failures >= _SUSPECT_AFTER:
            self.suspect()

    def suspect(self) -> None:
        """Send nothing more until a probe is answered."""
        if not self.open:
            self._probed.clear()
            self._over.clear()
            self._watching = asyncio.ensure_future(self._watch())

    def answered(self) -> None:
        """Record a request that was answered."""
        self._failures = 0
        if self.open:
            self._end()

    async def began_since(self, moment: float) -> bool:
        """Whether the server was found to be out after `moment`. While it is only suspected, waits for the first probe."""
        if self.open:
            await self._probed.wait()
        return self._confirmed_at > moment

    def patience_left(self, patience_seconds: float) -> float:
        """Seconds left until no request has been answered for `patience_seconds`."""
        return self._failing_since + patience_seconds - time.monotonic()

    async def wait(self, seconds: float) -> None:
        """Wait until the outage is over, or for at most `seconds`."""
        if not self._told and self._probed.is_set():
            self._told = True
            logger.warning("%s does not answer: %s Its requests wait while it is probed.", self._server, self.why)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    def stop(self) -> None:
        """Stop probing, and let waiting requests continue."""
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
            self._probed.set()
            self._over.set()

    async def _watch(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not await self._probe():
            if not self._probed.is_set():
                self._confirmed_at = time.monotonic()
                self._probed.set()
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311 - jitter, not a secret
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        self._failures = min(self._failures, 1)  # patience runs out only if no request is answered, probes aside
        self._end()

    def _end(self) -> None:
        if self._told:
            logger.warning("%s answers again after %.0f s.", self._server, time.monotonic() - self._failing_since)
            self._told = False
        self.stop()
