"""Requests that wait together are served together, and an error reaches those who asked for it."""

import asyncio

import pytest

from refinery.llms.micro_batch import MicroBatches, chunks


def test_requests_made_at_once_share_a_batch():
    served: list[int] = []

    def process(batch):
        served.append(len(batch))
        return [request * 2 for request in batch]

    async def ask():
        batches = MicroBatches(process)
        first = await asyncio.gather(*(batches.submit(number) for number in range(5)))
        return [*first, await batches.submit(7)]

    assert asyncio.run(ask()) == [0, 2, 4, 6, 8, 14]
    assert served == [5, 1]


def test_an_error_reaches_everyone_in_the_batch_and_the_next_batch_goes_on():
    def process(batch):
        if 0 in batch:
            raise ValueError("no zero")
        return list(batch)

    async def ask():
        batches = MicroBatches(process)
        failed = await asyncio.gather(batches.submit(0), batches.submit(1), return_exceptions=True)
        return failed, await batches.submit(2)

    failed, after = asyncio.run(ask())
    assert [str(error) for error in failed] == ["no zero", "no zero"]
    assert after == 2


@pytest.mark.parametrize(("budget", "groups"), [(1, [[1], [2], [0]]), (8, [[1, 2], [0]]), (100, [[1, 2, 0]])])
def test_rows_are_grouped_by_length_within_the_budget(budget, groups):
    assert chunks([9, 2, 4], budget) == groups
