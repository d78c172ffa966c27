"""Requests that wait together are served together, and an error reaches those who asked for it."""

import asyncio

import pytest

from refinery.runtime.batching import Batcher, chunks, in_thread


def test_requests_made_at_once_share_a_batch():
    served: list[int] = []

    def process(batch):
        served.append(len(batch))
        return [request * 2 for request in batch]

    async def ask():
        batches = Batcher(in_thread(process))
        first = await asyncio.gather(*(batches(number) for number in range(5)))
        return [*first, await batches(7)]

    assert asyncio.run(ask()) == [0, 2, 4, 6, 8, 14]
    assert served == [5, 1]


def test_a_batch_is_no_larger_than_allowed():
    served: list[int] = []

    async def run(batch):
        served.append(len(batch))
        return batch

    async def ask():
        batches = Batcher(run, max_batch=2)
        return await asyncio.gather(*(batches(number) for number in range(5)))

    assert asyncio.run(ask()) == [0, 1, 2, 3, 4]
    assert served == [2, 2, 1]


def test_an_error_reaches_everyone_in_the_batch_and_the_next_batch_goes_on():
    def process(batch):
        if 0 in batch:
            raise ValueError("no zero")
        return list(batch)

    async def ask():
        batches = Batcher(in_thread(process))
        failed = await asyncio.gather(batches(0), batches(1), return_exceptions=True)
        return failed, await batches(2)

    failed, after = asyncio.run(ask())
    assert [str(error) for error in failed] == ["no zero", "no zero"]
    assert after == 2


@pytest.mark.parametrize(("budget", "groups"), [(1, [[1], [2], [0]]), (8, [[1, 2], [0]]), (100, [[1, 2, 0]])])
def test_rows_are_grouped_by_length_within_the_budget(budget, groups):
    assert chunks([9, 2, 4], budget) == groups
