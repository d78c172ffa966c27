import asyncio
import threading

import pytest

from refinery.runtime.background_loop import await_in_background, run_anywhere, run_in_background


async def thread_name() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def fail() -> None:
    raise KeyError("inside")


@pytest.mark.parametrize("run", [run_anywhere, run_in_background])
def test_a_coroutine_is_run_inside_and_outside_a_running_loop(run):
    async def cell() -> str:
        return run(thread_name())

    outside, inside = run(thread_name()), asyncio.run(cell())
    assert inside != threading.current_thread().name
    assert (outside == "refinery") == (run is run_in_background)


@pytest.mark.parametrize("run", [run_anywhere, run_in_background, lambda coroutine: asyncio.run(await_in_background(coroutine))])
def test_its_error_is_the_callers(run):
    with pytest.raises(KeyError, match="inside"):
        run(fail())


def test_giving_up_the_wait_cancels_the_coroutine():
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(await_in_background(wait()), 0.05)

    asyncio.run(give_up())
    assert cancelled.wait(5)


def test_an_interrupt_waits_until_the_coroutine_has_cleaned_up(monkeypatch):
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(True)

    def interrupted(future, timeout=None):
        monkeypatch.undo()
        asyncio.run(asyncio.sleep(0.05))
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.Future.result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_in_background(work())
    assert cleaned == [True]
