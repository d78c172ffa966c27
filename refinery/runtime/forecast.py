"""What a step will probably take, before it and its inputs exist. Every number is a range, because none of them is known yet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path

Range = tuple[float, float]  # at least, at most
# The number of rows that a file has or will have; None if nothing says so.
RowsOf = Callable[[Path], int | None]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a step reads (`rows`), writes (rows by file), asks, pays, takes and needs. None is unknown; dollars or seconds of 0 are none.

    `gpu_seconds` is how long models that are not behind an endpoint compute on one GPU: None for every step that has such a model, since
    rows, devices and batches span several orders of magnitude before anything is measured. `disk_bytes` is what the step leaves on disk.
    """

    rows: int | None = None
    writes: Mapping[Path, int] = field(default_factory=dict[Path, int])
    calls: Range | None = None
    dollars: Range | None = (0, 0)
    seconds: Range | None = (0, 0)
    memory_bytes: float | None = None
    gpu_seconds: Range | None = (0, 0)
    disk_bytes: Range | None = (0, 0)


@dataclass(frozen=True, slots=True)
class Expected:
    """What files have or will have when a step begins: their rows and bytes; None if nothing says so."""

    rows_of: RowsOf
    bytes_of: RowsOf = lambda path: None


def total(ranges: "list[Range]") -> Range:
    """The sum of ranges."""
    return sum(low for low, _ in ranges), sum(high for _, high in ranges)


def extrapolated(values: Sequence[float], count: int) -> Range:
    """The sum over `count` rows with a 95% interval, from the values of a random sample of at least two."""
    from statistics import mean, stdev

    middle, error = mean(values) * count, 1.96 * stdev(values) / sqrt(len(values)) * count
    return max(0.0, middle - error), middle + error
