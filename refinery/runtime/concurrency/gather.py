"""Run coroutines together, and end them together."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results in order. The first error cancels the others and is raised after they have ended, not as part of an error group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def each(items: Iterable[T], work: Callable[[T], Awaitable[None]], *, at_once: int) -> None:
    """Call `work` with every item, for `at_once` items at a time. An item is taken only when a worker is free."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:  # shared by all workers: each item goes to one of them
            await work(item)
            await asyncio.sleep(0)  # for work that never waits

    await together(worker() for _ in range(at_once))
