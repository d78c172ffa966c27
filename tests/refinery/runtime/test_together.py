import asyncio

import pytest

from refinery.runtime.together import together


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
