"""Requests that are made one by one and served together: what is asked for while one batch is served makes up the next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_SETTLE_TURNS = 3


class Batcher(Generic[Item, Result]):
    """Calls `run` with the items that wait, one batch of at most `max_batch` at a time, and gives each its result, or raises
    the error that is there in its place.

    A batch begins when a few turns of the event loop have brought no further item: those who ask at once are served at once.
    """

    def __init__(self, run: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]], *, max_batch: int | None = None) -> None:
        self._run, self._max_batch = run, max_batch
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._server: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Result:
        """The result for one item. Raises what `run` raised for the batch it was in."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((item, future))
        if self._server is None or self._server.done():
            self._server = loop.create_task(self._serve())
        return await future

    async def _serve(self) -> None:
        while self._waiting:
            await self._settled()
            size = self._max_batch or len(self._waiting)
            batch, self._waiting = self._waiting[:size], self._waiting[size:]
            try:
                results = await self._run([item for item, _ in batch])
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), result in zip(batch, results, strict=True):
                if future.done():  # one that gave up has cancelled its own
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    async def _settled(self) -> None:
        seen = -1
        while seen != len(self._waiting):
            seen = len(self._waiting)
            for _ in range(_SETTLE_TURNS):
                await asyncio.sleep(0)


def in_thread(run: Callable[[Sequence[Item]], Sequence[Result]]) -> Callable[[Sequence[Item]], Awaitable[Sequence[Result]]]:
    """`run` on a thread of its own, so that the event loop goes on; one thread, since torch and faiss keep one pool per calling thread."""
    thread = ThreadPoolExecutor(max_workers=1)

    async def run_in_thread(items: Sequence[Item]) -> Sequence[Result]:
        return await asyncio.get_running_loop().run_in_executor(thread, run, items)

    return run_in_thread


def chunks(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Positions of the rows, shortest first, in groups whose padded size fits the budget; one row always fits."""
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if groups and (len(groups[-1]) + 1) * lengths[i] <= token_budget:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
