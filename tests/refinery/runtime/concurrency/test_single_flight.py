import asyncio

import pytest

from refinery.runtime.concurrency.single_flight import SingleFlight


class Work:
    """Counts how often it is begun, and waits until it is let go."""

    def __init__(self, outcome="done", *, waits=True):
        self.begun, self._outcome, self.let_go = 0, outcome, asyncio.Event()
        if not waits:
            self.let_go.set()

    async def __call__(self):
        self.begun += 1
        await self.let_go.wait()
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def together(flight, work, keys):
    async def run():
        asked = [asyncio.ensure_future(flight(key, work)) for key in keys]
        await asyncio.sleep(0)
        work.let_go.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(run())


def test_equal_work_is_done_once_and_other_work_by_itself():
    work = Work()
    assert together(SingleFlight(), work, ["a", "a", "b", "a"]) == ["done"] * 4
    assert work.begun == 2


def test_none_is_a_result_like_any():
    work = Work(None)
    assert together(SingleFlight(), work, ["a", "a"]) == [None, None]
    assert work.begun == 1


def test_an_error_reaches_all_that_wait_and_the_next_begins_anew():
    flight, work = SingleFlight(), Work(ValueError("down"))
    assert [str(error) for error in together(flight, work, ["a", "a"])] == ["down", "down"]
    with pytest.raises(ValueError, match="down"):
        asyncio.run(flight("a", work))
    assert work.begun == 2


@pytest.mark.parametrize("cancelled", [[0], [0, 1], [1]])
def test_work_whose_task_is_cancelled_is_done_by_one_that_waits(cancelled):
    flight, work = SingleFlight(), Work("done")

    async def run():
        asked = [asyncio.ensure_future(flight("a", work)) for _ in range(3)]
        await asyncio.sleep(0)
        for index in cancelled:
            asked[index].cancel()
            await asyncio.sleep(0)
        work.let_go.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    results = asyncio.run(run())
    assert [index for index, result in enumerate(results) if isinstance(result, asyncio.CancelledError)] == cancelled
    assert [result for result in results if result == "done"] == ["done"] * (3 - len(cancelled))


def test_work_that_needs_no_waiting_is_done_in_the_turn_in_which_it_is_asked_for():
    async def run():
        asked = asyncio.ensure_future(SingleFlight()("a", Work(waits=False)))
        await asyncio.sleep(0)
        return asked.done()

    assert asyncio.run(run())
