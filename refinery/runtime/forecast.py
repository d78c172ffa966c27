"""What a step will probably take, before it and its inputs exist. Every number is a range, because none of them is known yet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import sqrt
from pathlib import Path

from refinery.runtime.module_process import usable_cores

Range = tuple[float, float]  # at least, at most
# The number of rows that a file has or will have; None if nothing says so.
RowsOf = Callable[[Path], int | None]

# Operations a second that training and inference reach: of one processor core, and of one GPU.
_CORE, _GPU = (1e10, 6e10), (2e13, 3e14)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a step reads (`rows`), writes (rows by file), asks, pays, takes and needs. None is unknown; dollars or seconds of 0 are none.

    `gpu_seconds` is how long models that are not behind an endpoint compute on one GPU, `disk_bytes` what the step leaves on disk, and
    `base` the model that the one in its output is made from.
    """

    rows: int | None = None
    writes: Mapping[Path, int] = field(default_factory=dict[Path, int])
    calls: Range | None = None
    dollars: Range | None = (0, 0)
    seconds: Range | None = (0, 0)
    memory_bytes: float | None = None
    gpu_seconds: Range | None = (0, 0)
    disk_bytes: Range | None = (0, 0)
    base: str | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """What files have or will have when a step begins: their rows and bytes; None if nothing says so.

    `base_of(model)` is the base of a model that an earlier step leaves in a folder, and `model` itself of any other.
    """

    rows_of: RowsOf
    bytes_of: RowsOf = lambda path: None
    base_of: Callable[[str], str] = str


def total(ranges: "list[Range]") -> Range:
    """The sum of ranges."""
    return sum(low for low, _ in ranges), sum(high for _, high in ranges)


def extrapolated(values: Sequence[float], count: int) -> Range:
    """The sum over `count` rows with a 95% interval, from the values of a random sample of at least two."""
    from statistics import mean, stdev

    middle, error = mean(values) * count, 1.96 * stdev(values) / sqrt(len(values)) * count
    return max(0.0, middle - error), middle + error


def seconds_of(operations: Range) -> Range:
    """How long this machine computes: at the higher speed for the fewest operations, at the lower one for the most."""
    slow, fast = _speed()
    return operations[0] / fast, operations[1] / slow


def gpu_seconds_of(operations: Range) -> Range:
    """How long one GPU computes, whatever this machine has."""
    return operations[0] / _GPU[1], operations[1] / _GPU[0]


@cache
def _speed() -> Range:
    import torch

    if torch.accelerator.is_available():
        count = torch.accelerator.device_count()
        return _GPU[0] * count, _GPU[1] * count
    cores = usable_cores()
    return _CORE[0] * cores, _CORE[1] * cores
