import asyncio

import pytest

from refinery.llms.served.limits.concurrency import AdaptiveConcurrencyLimit, RateLimiter


class Server:
    """Takes `width` calls at once and refuses the rest at once."""

    def __init__(self, width: int) -> None:
        self.width, self.open, self.refused, self.peak = width, 0, 0, 0

    async def call(self) -> bool:
        if self.open >= self.width:
            self.refused += 1
            return False
        self.open += 1
        self.peak = max(self.peak, self.open)
        await asyncio.sleep(0.002)
        self.open -= 1
        return True


async def ask(gate: AdaptiveConcurrencyLimit, server: Server) -> None:
    while True:
        entered = await gate.enter()
        answered = await server.call()
        gate.leave(entered, refused=not answered)
        if answered:
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("width", [1, 3, 16])
def test_the_gate_finds_what_the_endpoint_takes(width):
    server, gate = Server(width), AdaptiveConcurrencyLimit(64)

    async def run() -> None:
        await asyncio.gather(*(ask(gate, server) for _ in range(600)))

    asyncio.run(run())
    assert server.peak == width
    assert gate.limit <= width + 1
    # The first burst, and probes that grow rarer.
    assert server.refused < 64 + 40


def test_an_endpoint_that_takes_all_is_never_held_back():
    server, gate = Server(64), AdaptiveConcurrencyLimit(64)

    async def run() -> None:
        await asyncio.gather(*(ask(gate, server) for _ in range(300)))

    asyncio.run(run())
    assert (server.peak, server.refused, gate.limit) == (64, 0, 64)


def test_after_a_rate_limit_the_gate_opens_again():
    gate = AdaptiveConcurrencyLimit(32)

    async def run() -> None:
        entered = [await gate.enter() for _ in range(32)]
        for at in entered:
            gate.leave(at, refused=True)
        assert gate.limit == 1
        for _ in range(200):
            gate.leave(await gate.enter(), refused=False)

    asyncio.run(run())
    assert gate.limit >= 16


def test_a_caller_that_gives_up_leaves_its_place_to_the_next():
    gate = AdaptiveConcurrencyLimit(1)

    async def run() -> None:
        first = await gate.enter()
        waiting = [asyncio.ensure_future(gate.enter()) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        gate.leave(first, refused=False)
        gate.leave(await waiting[1], refused=False)

    asyncio.run(run())
    assert gate.in_flight == 0


def test_a_minute_budget_spends_no_more_than_it_has_and_gives_back_what_was_not_used():
    async def run() -> tuple[float, float]:
        loop, budget = asyncio.get_running_loop(), RateLimiter(600)  # ten a second
        began = loop.time()
        for _ in range(12):
            await budget.take(1)
        slow = loop.time() - began
        budget.settle(10, 0)
        began = loop.time()
        for _ in range(5):
            await budget.take(1)
        return slow, loop.time() - began

    slow, quick = asyncio.run(run())
    assert slow >= 0.15  # two more than a second's worth
    assert quick < slow
