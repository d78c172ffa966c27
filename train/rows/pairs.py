"""Rows that consist of two sequences."""

from dataclasses import dataclass

from refinery.contract.segments import EncodedRow, SegmentKind


@dataclass(frozen=True, slots=True)
class PreferenceRow:
    """Two paths as a row, counted and shown one after the other."""

    chosen: EncodedRow
    rejected: EncodedRow
    question_id: str = ""

    @property
    def input_ids(self) -> list[int]:
        """Token ids of both."""
        return self.chosen.input_ids + self.rejected.input_ids

    @property
    def labels(self) -> list[int]:
        """The loss mask of both."""
        return self.chosen.labels + self.rejected.labels

    @property
    def kinds(self) -> list[SegmentKind]:
        """The kind of each token of both."""
        return self.chosen.kinds + self.rejected.kinds
