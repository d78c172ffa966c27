"""Serve separate requests in batches: requests that arrive while one batch is served form the next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_SETTLE_TURNS = 3


@dataclass(frozen=True, slots=True)
class Postponed:
    """Returned instead of a result: the item joins the next batch, before new items and after those postponed with a lower `place`."""

    place: int


class Batcher(Generic[Item, Result]):
    """Calls `run` with the waiting items, at most `max_batch` in a batch and `at_once` batches at a time, and returns each item's result,
    or raises the error that `run` returned for it.

    A batch starts when `settle_turns` turns of the event loop have brought no new item, so that simultaneous requests share a batch.
    Items whose callers have given up by then are left out.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception | Postponed]]],
        *,
        max_batch: int | None = None,
        at_once: int = 1,
        settle_turns: int = _SETTLE_TURNS,
    ) -> None:
        self._run, self._max_batch, self._at_once, self._settle_turns = run, max_batch, at_once, settle_turns
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._servers: list[asyncio.Task[None]] = []

    @property
    def waiting(self) -> int:
        """The number of items that wait for the next batch. Can be read from any thread."""
        return len(self._waiting)

    async def __call__(self, item: Item) -> Result:
        """The result for one item. Raises what `run` raised for its batch."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((item, future))
        self._servers = [server for server in self._servers if not server.done()]
        if len(self._servers) < self._at_once:
            self._servers.append(loop.create_task(self._serve()))
        return await future

    async def _serve(self) -> None:
        while self._waiting:
            await self._settled()
            self._waiting = [(item, future) for item, future in self._waiting if not future.done()]
            size = self._max_batch or len(self._waiting)
            batch, self._waiting = self._waiting[:size], self._waiting[size:]
            if batch:
                self._waiting = await self._served(batch) + self._waiting

    async def _served(self, batch: Sequence[tuple[Item, asyncio.Future[Result]]]) -> list[tuple[Item, asyncio.Future[Result]]]:
        """Run one batch and deliver its results. Returns the postponed items."""
        try:
            results: Sequence[Result | Exception | Postponed] = await self._run([item for item, _ in batch])
        except Exception as error:
            results = [error] * len(batch)
        postponed: list[tuple[int, tuple[Item, asyncio.Future[Result]]]] = []
        for (item, future), result in zip(batch, results, strict=True):
            if future.done():  # a caller that gave up has canceled its future
                continue
            if isinstance(result, Postponed):
                postponed.append((result.place, (item, future)))
            elif isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
        return [waiting for _, waiting in sorted(postponed, key=lambda found: found[0])]

    async def _settled(self) -> None:
        seen = -1
        while seen != len(self._waiting):
            seen = len(self._waiting)
            for _ in range(self._settle_turns):
                await asyncio.sleep(0)


def in_thread(
    run: Callable[[Sequence[Item]], Sequence[Result]], *, threads: int = 1
) -> Callable[[Sequence[Item]], Awaitable[Sequence[Result]]]:
    """`run` on a separate thread, so as not to block the event loop. One by default: torch and faiss keep a pool per calling thread."""
    pool = ThreadPoolExecutor(max_workers=threads)

    async def run_in_thread(items: Sequence[Item]) -> Sequence[Result]:
        return await asyncio.get_running_loop().run_in_executor(pool, run, items)

    return run_in_thread


def chunks(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Positions of the rows, shortest first, in groups whose padded size fits the budget. A single row always fits."""
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if groups and (len(groups[-1]) + 1) * lengths[i] <= token_budget:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
