"""Requests that wait together are served together, and an error reaches those who asked for it."""

import asyncio

import pytest

from refinery.runtime.concurrency.batching import Batcher, Postponed, chunks, in_thread


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


def test_what_is_postponed_comes_before_new_items_in_the_order_of_its_places():
    batches: list[list[str]] = []
    later = []

    async def run(batch):
        batches.append(list(batch))
        if len(batches) > 1:
            return batch
        later.append(asyncio.ensure_future(ask_for("new")))
        await asyncio.sleep(0)
        return ["done", Postponed(1), Postponed(0)]

    async def ask():
        return await asyncio.gather(*map(ask_for, "abc"))

    ask_for = Batcher(run)
    assert asyncio.run(ask()) == ["done", "b", "c"]
    assert batches == [["a", "b", "c"], ["c", "b", "new"]]


def test_an_item_whose_caller_has_given_up_is_left_out():
    batches: list[list[str]] = []

    async def run(batch):
        batches.append(list(batch))
        return batch

    async def ask():
        ask_for = Batcher(run)
        gone, other = (asyncio.ensure_future(ask_for(item)) for item in "ab")
        await asyncio.sleep(0)
        gone.cancel()
        return await other

    assert asyncio.run(ask()) == "b"
    assert batches == [["b"]]


@pytest.mark.parametrize(("budget", "groups"), [(1, [[1], [2], [0]]), (8, [[1, 2], [0]]), (100, [[1, 2, 0]])])
def test_rows_are_grouped_by_length_within_the_budget(budget, groups):
    assert chunks([9, 2, 4], budget) == groups
