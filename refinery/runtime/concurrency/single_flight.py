"""Do equal concurrent work once: a search, a teacher's reply, a greedy completion."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class SingleFlight(Generic[Key, Result]):
    """Runs one piece of work per key at a time. Callers with a key in progress wait for its result or its error.

    The first caller does the work in its own task, so nothing is scheduled, and work that never waits is done when the call returns. If
    that task is canceled, the next waiting caller does the work.
    """

    def __init__(self) -> None:
        self._under_way: dict[Key, asyncio.Future[Result]] = {}

    async def __call__(self, key: Key, work: Callable[[], Awaitable[Result]]) -> Result:
        """The result of `work`, or of equal work in progress. Raises what the work raises."""
        while (under_way := self._under_way.get(key)) is not None:
            with suppress(_Abandoned):
                return await asyncio.shield(under_way)  # because others wait for the same future
        return await self._lead(key, work)

    async def _lead(self, key: Key, work: Callable[[], Awaitable[Result]]) -> Result:
        future = self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            result = await work()
            future.set_result(result)
            return result
        except BaseException as error:
            future.set_exception(error if isinstance(error, Exception) else _Abandoned())
            future.exception()  # mark the error as retrieved, even if no other caller waits for it
            raise
        finally:
            del self._under_way[key]


class _Abandoned(Exception):
    """The task that did the work was canceled."""
