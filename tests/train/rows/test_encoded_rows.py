"""Rows in flat arrays: the same rows, a tenth of the memory, and what the trainer's dataset reads."""

import tracemalloc
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from refinery.contract.segments import EncodedRow
from train.rows.encoded_rows import KINDS, EncodedRows
from train.rows.packing import build_dataset

tokens = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.booleans(), st.sampled_from(KINDS)), max_size=30)


def row_of(drawn: list[tuple[int, bool, Any]], question_id: str) -> EncodedRow:
    ids = [token_id for token_id, _, _ in drawn]
    return EncodedRow(ids, [token_id if trained else -100 for token_id, trained, _ in drawn], [kind for _, _, kind in drawn], question_id)


@given(rows=st.lists(tokens, min_size=1, max_size=5))
def test_rows_are_read_back_as_they_were(rows: list[Any]) -> None:
    given = [row_of(drawn, f"q{number}") for number, drawn in enumerate(rows)]
    encoded = EncodedRows.of(given)
    assert encoded == given
    assert [row.question_id for row in encoded] == [row.question_id for row in given]
    assert (encoded[-1], encoded[1:]) == (given[-1], given[1:])


@given(rows=st.lists(tokens, min_size=1, max_size=5))
def test_the_dataset_has_what_the_rows_have(rows: list[Any]) -> None:
    given = [row_of(drawn, "") for drawn in rows]
    found = list(build_dataset(given))
    assert [(example["input_ids"], example["labels"]) for example in found] == [(row.input_ids, row.labels) for row in given]
    assert [[KINDS[kind] for kind in example["kinds"]] for example in found] == [row.kinds for row in given]


def test_they_take_a_tenth_of_what_lists_take_with_their_dataset() -> None:
    def rows() -> list[EncodedRow]:
        return [EncodedRow(list(range(999, 1999)), [-100] * 500 + list(range(1499, 1999)), list(KINDS[:2]) * 500) for _ in range(100)]

    lists, arrays = held_by(rows), held_by(lambda: EncodedRows.of(rows()))
    encoded = EncodedRows.of(rows())
    build_dataset(encoded)  # what it imports
    assert arrays + held_by(lambda: build_dataset(encoded)) < lists / 5
    assert build_dataset(encoded).data.nbytes <= 9 * 1000 * 100 + 8 * 101 * 3


def held_by(make: Callable[[], Any]) -> int:
    """Bytes that Python allocated for a value and still holds."""
    tracemalloc.start()
    value = make()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del value
    return held
