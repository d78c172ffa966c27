import asyncio

import pytest

from refinery.runtime.concurrency.gather import each, together


async def after(seconds: float, value: str) -> str:
    await asyncio.sleep(seconds)
    return value


def test_results_come_in_the_order_of_the_coroutines():
    assert asyncio.run(together(after(seconds, str(seconds)) for seconds in (0.02, 0.0, 0.01))) == ["0.02", "0.0", "0.01"]


def test_the_first_error_is_raised_alone_once_the_others_have_ended():
    ended = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(together([wait(), fail(), wait()]))
    assert ended == [True, True]


def test_items_are_taken_only_when_there_is_room_and_each_is_worked_on_once():
    taken, done, most = [], [], 0

    async def work(item: int) -> None:
        nonlocal most
        most = max(most, len(taken) - len(done))
        await asyncio.sleep(0.001 * (item % 3))
        done.append(item)

    asyncio.run(each((taken.append(item) or item for item in range(20)), work, at_once=3))
    assert (sorted(done), most) == ([*range(20)], 3)


def test_an_error_ends_all_work():
    worked = []

    async def work(item: int) -> None:
        worked.append(item)
        if item == 2:
            raise KeyError("mine")
        await asyncio.sleep(60)

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(each(range(99), work, at_once=4))
    assert worked == [0, 1, 2, 3]
