"""Single searches into batches: what is asked for while one batch runs makes up the next."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Calls `run` with the items that wait, one batch at a time."""

    def __init__(self, run: Callable[[list[Item]], Awaitable[list[Result]]], *, max_batch: int) -> None:
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
        await asyncio.sleep(0)  # those that search in this turn of the loop share the first batch
        while self._waiting:
            batch, self._waiting = self._waiting[: self._max_batch], self._waiting[self._max_batch :]
            try:
                results = await self._run([item for item, _ in batch])
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():  # one that gave up has cancelled its own
                    future.set_result(result)


def in_thread(run: Callable[[list[Item]], list[Result]]) -> Callable[[list[Item]], Awaitable[list[Result]]]:
    """`run` on a thread of its own, so that the event loop goes on; one thread, since torch and faiss keep one pool per calling thread."""
    thread = ThreadPoolExecutor(max_workers=1)

    async def run_in_thread(items: list[Item]) -> list[Result]:
        return await asyncio.get_running_loop().run_in_executor(thread, run, items)

    return run_in_thread
