from array import array

import pytest

from refinery.runtime.files import duplicate_ids
from refinery.runtime.files.duplicate_ids import num_repetitions, repeated

LARGE = 2**64 - 1


@pytest.mark.parametrize("few", [50_000, 0])
@pytest.mark.parametrize(
    ("numbers", "twice", "count"),
    [([], set(), 0), ([3, LARGE, 3], {3}, 1), ([LARGE, 7, LARGE, LARGE, 7], {7, LARGE}, 3), ([1, 2], set(), 0)],
)
def test_few_numbers_and_many_are_counted_alike(monkeypatch, few, numbers, twice, count):
    monkeypatch.setattr(duplicate_ids, "_FEW", few)
    assert repeated(array("Q", numbers)) == twice
    assert num_repetitions(array("Q", numbers)) == count
