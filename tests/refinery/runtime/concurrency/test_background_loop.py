import asyncio
import subprocess
import sys
import threading

import pytest

from refinery.errors import RefineryError
from refinery.runtime.concurrency.background_loop import await_in_background, run_anywhere, run_in_background


async def thread_name() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def loop_module() -> str:
    return type(asyncio.get_running_loop()).__module__


@pytest.mark.parametrize("run", [run_anywhere, run_in_background])
@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not exist for Windows")
def test_coroutines_run_on_uvloop(run):
    assert run(loop_module()).partition(".")[0] == "uvloop"


def test_without_uvloop_they_run_on_pythons_own_loop(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run_anywhere(loop_module()).partition(".")[0] == "asyncio"


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


def test_a_call_from_the_loop_itself_is_refused_and_does_not_wait_for_ever():
    async def part() -> str:
        return run_in_background(thread_name())

    with pytest.raises(RefineryError, match="Await its async twin there."):
        run_in_background(part())


def test_a_forked_process_has_a_loop_of_its_own():
    script = """
import asyncio, os, sys
from refinery.errors import RefineryError
from refinery.runtime.concurrency.background_loop import run_in_background
run_in_background(asyncio.sleep(0))
if (child := os.fork()) == 0:
    run_in_background(asyncio.sleep(0))
    os._exit(7)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=30).returncode == 7
