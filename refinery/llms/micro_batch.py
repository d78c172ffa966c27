"""Requests that decoders wait for, gathered and served together. An engine says what serving them means."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

_SETTLE_TURNS = 3

R = TypeVar("R")


class MicroBatches(Generic[R]):
    """Serves requests in batches: one begins when a few turns of the event loop have brought no further request.

    `process` takes the requests of a batch and gives their results in order. It runs on one thread of its own: torch keeps one
    OpenMP pool per calling thread.
    """

    def __init__(self, process: Callable[[Sequence[R]], list[Any]]) -> None:
        self._process = process
        self._queue: list[tuple[R, asyncio.Future[Any]]] = []
        self._server: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1)

    async def submit(self, request: R) -> Any:
        """Wait for the request's result. Raises what `process` raised on its batch."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._queue.append((request, future))
        if self._server is None or self._server.done():
            self._server = loop.create_task(self._serve())
        return await future

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue:
            await self._settled()
            batch, self._queue = self._queue, []
            try:
                results = await loop.run_in_executor(self._thread, self._process, [request for request, _ in batch])
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():  # a decoder that gave up has cancelled its own
                    future.set_result(result)

    async def _settled(self) -> None:
        seen = -1
        while seen != len(self._queue):
            seen = len(self._queue)
            for _ in range(_SETTLE_TURNS):
                await asyncio.sleep(0)


def chunks(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Positions of the rows, shortest first, in groups whose padded size fits the budget; one row always fits."""
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if groups and (len(groups[-1]) + 1) * lengths[i] <= token_budget:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
