"""Encoded rows in flat arrays: nine bytes a token, where the lists of an `EncodedRow` take about a hundred.

The trainer's dataset reads the same arrays without a copy (`train/rows/packing.py`).
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast, get_args, overload

from refinery.contract.segments import EncodedRow, SegmentKind

if TYPE_CHECKING:
    import numpy as np

KINDS: tuple[SegmentKind, ...] = get_args(SegmentKind)
_INDEX = {kind: number for number, kind in enumerate(KINDS)}


@dataclass(frozen=True, slots=True)
class CompactRow:
    """An `EncodedRow` as it is kept and sent between processes: ids and labels of four bytes each, and indices into KINDS."""

    input_ids: "array[int]"
    labels: "array[int]"
    kinds: bytes
    question_id: str = ""

    @classmethod
    def of(cls, row: EncodedRow) -> "CompactRow":
        """The same row."""
        return cls(array("i", row.input_ids), array("i", row.labels), bytes(map(_INDEX.__getitem__, row.kinds)), row.question_id)


class EncodedRows(Sequence[EncodedRow]):
    """A sequence of rows, each of which is made when it is asked for."""

    def __init__(self, rows: Iterable[CompactRow] = ()) -> None:
        self.starts, self._question_ids = [0], list[str]()
        self._columns: dict[str, Any] = {"input_ids": array("i"), "labels": array("i"), "kinds": array("b")}
        for row in rows:
            self.append(row)

    def append(self, row: CompactRow) -> None:
        """Add a row, which need not be kept. Nothing is added once `columns` or a row has been read."""
        for name, values in self._columns.items():
            values.frombytes(bytes(getattr(row, name)))
        self.starts.append(self.starts[-1] + len(row.input_ids))
        self._question_ids.append(row.question_id)

    def reorder(self, order: Sequence[int]) -> None:
        """Put the rows in an order of all their numbers, one column after the other, so that only one is held twice meanwhile."""
        import numpy as np

        for name, values in self.columns.items():
            self._columns[name] = np.concatenate([values[self.starts[number] : self.starts[number + 1]] for number in order])
        lengths = self.lengths
        self.starts = [0, *accumulate(lengths[number] for number in order)]
        self._question_ids = [self._question_ids[number] for number in order]

    @classmethod
    def of(cls, rows: Sequence[EncodedRow]) -> "EncodedRows":
        """The same rows; themselves if they are in arrays already."""
        return rows if isinstance(rows, cls) else cls([CompactRow.of(row) for row in rows])

    @property
    def columns(self) -> "dict[str, np.ndarray[Any, Any]]":
        """`input_ids` and `labels` (int32) and `kinds` (int8), each (tokens,): row i is from `starts[i]` to `starts[i + 1]`."""
        import numpy as np

        return {name: np.frombuffer(values, np.int8 if name == "kinds" else np.int32) for name, values in self._columns.items()}

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row."""
        return [end - start for start, end in zip(self.starts, self.starts[1:], strict=False)]

    def __len__(self) -> int:
        return len(self._question_ids)

    def __iter__(self) -> Iterator[EncodedRow]:
        return map(self._row, range(len(self)))

    @overload
    def __getitem__(self, index: int) -> EncodedRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[EncodedRow]: ...
    def __getitem__(self, index: int | slice) -> EncodedRow | list[EncodedRow]:
        numbers = range(len(self))[index]
        return self._row(numbers) if isinstance(numbers, int) else list(map(self._row, numbers))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(cast("Sequence[Any]", other))

    def _row(self, number: int) -> EncodedRow:
        part = slice(self.starts[number], self.starts[number + 1])
        ids, labels, kinds = (self.columns[name][part].tolist() for name in ("input_ids", "labels", "kinds"))
        return EncodedRow(ids, labels, [KINDS[kind] for kind in kinds], self._question_ids[number])
