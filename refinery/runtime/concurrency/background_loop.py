"""Run coroutines from synchronous code, even when an event loop is already running, as in a notebook."""

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
    """The coroutine's result, as from `asyncio.run`. If this thread already has a running event loop, another thread runs it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(coroutine)
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(_run, coroutine).result()


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(coroutine)


def _new_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop, which spends about a sixth less CPU time on a call to an endpoint; without uvloop, Python's own."""
    try:
        import uvloop
    except ModuleNotFoundError:  # it does not exist for Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_in_background(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result from the process's background event loop, so that connections stay open between calls.

    An interrupt cancels the coroutine and waits until it has cleaned up. Raises RefineryError when called from that loop, which would
    deadlock.
    """
    if threading.current_thread().name == _THREAD:
        coroutine.close()
        raise RefineryError("the sync form was called from code that Refinery itself is running. Await its async twin there.")
    ended = threading.Event()
    future = _started(coroutine, ended)
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        ended.wait(_SECONDS_TO_CLEAN_UP)
        raise


async def await_in_background(coroutine: Coroutine[Any, Any, T]) -> T:
    """The same for a caller on another event loop. Cancelling the wait cancels the coroutine."""
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
    loop = _new_loop()
    threading.Thread(target=loop.run_forever, name=_THREAD, daemon=True).start()
    return loop


os.register_at_fork(after_in_child=_loop.cache_clear)  # the child has the loop but not its thread
