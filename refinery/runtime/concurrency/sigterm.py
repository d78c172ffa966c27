"""End a coroutine cleanly when the process receives SIGTERM."""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from refinery.errors import Stopped

T = TypeVar("T")


async def stoppable(coroutine: Coroutine[Any, Any, T], remedy: str) -> T:
    """The coroutine's result. SIGTERM cancels it; after it has cleaned up, Stopped is raised with the `remedy`.

    Only the main thread can handle signals; on any other thread, the process's own handling remains.
    """
    if threading.current_thread() is not threading.main_thread():
        return await coroutine
    task, told, loop = asyncio.ensure_future(coroutine), asyncio.Event(), asyncio.get_running_loop()

    def stop() -> None:
        told.set()
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if told.is_set():
            raise Stopped(f"stopped by SIGTERM. {remedy}") from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
