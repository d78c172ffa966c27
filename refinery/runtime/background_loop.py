"""Coroutines run from code that is not async, also where an event loop runs already, as in a notebook."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

from refinery.errors import RefineryError

T = TypeVar("T")
_SECONDS_TO_CLEAN_UP = 30.0
_THREAD = "refinery"


def run_anywhere(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result, as `asyncio.run` gives it; where an event loop runs in this thread, by one on another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def run_in_background(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result, from the one event loop that this process keeps for it: connections last from call to call.

    An interrupt cancels the coroutine and waits until it has cleaned up. Raises RefineryError for a call from that loop, which would wait
    for itself.
    """
    if threading.current_thread().name == _THREAD:
        coroutine.close()
        raise RefineryError("the sync form was called by a part that Refinery itself is running. Await its async twin there.")
    ended = threading.Event()
    future = _started(coroutine, ended)
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        ended.wait(_SECONDS_TO_CLEAN_UP)
        raise


async def await_in_background(coroutine: Coroutine[Any, Any, T]) -> T:
    """The same for a caller on another event loop; to cancel the wait cancels the coroutine."""
    return await asyncio.wrap_future(_started(coroutine, threading.Event()))


def _started(coroutine: Coroutine[Any, Any, T], ended: threading.Event) -> "Future[T]":
    async def run() -> T:
        try:
            return await coroutine
        finally:
            ended.set()

    return asyncio.run_coroutine_threadsafe(run(), _loop())


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The process's background loop, on a thread that ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=_THREAD, daemon=True).start()
    return loop


os.register_at_fork(after_in_child=_loop.cache_clear)  # the child has the loop and not its thread
