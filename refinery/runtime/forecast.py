"""What a step will probably take and cost, before it and its inputs exist. Every number is a range, because none of them is known yet."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path

Range = tuple[float, float]  # at least, at most
# The number of rows that a file has or will have; None if nothing says so.
RowsOf = Callable[[Path], int | None]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a step reads (`rows`), writes (rows by file), asks, pays and needs, in memory and left on disk. None is unknown.

    Memory is that of each of `gpus`, or this machine's own where that is 0. `seconds_of_searches` is how long an engine that limits its
    rate takes for one search of each row, which most methods exceed. There is no other time: before anything is measured, models and
    devices make it differ by several orders of magnitude.
    """

    rows: int | None = None
    writes: Mapping[Path, int] = field(default_factory=dict[Path, int])
    calls: Range | None = None
    dollars: Range | None = (0, 0)
    memory_bytes: float | None = None
    gpus: int = 0
    seconds_of_searches: float = 0.0
    disk_bytes: Range | None = (0, 0)


@dataclass(slots=True)
class Expected:
    """What files will have when a step begins: what earlier steps leave (`rows` and `sizes` by path), and what is there already."""

    rows: dict[Path, int] = field(default_factory=dict[Path, int])
    sizes: dict[Path, float] = field(default_factory=dict[Path, float])

    def rows_of(self, path: Path) -> int | None:
        """The rows of a file, or of all files in a folder; None if nothing says so."""
        if path in self.rows:
            return self.rows[path]
        inside = [count for file, count in self.rows.items() if path in file.parents]
        if inside or not path.is_file():
            return sum(inside) if inside else None
        with path.open("rb") as lines:
            return sum(1 for _ in lines)

    def bytes_of(self, path: Path) -> float | None:
        """The bytes of a file or folder; None if nothing says so."""
        if path in self.sizes:
            return self.sizes[path]
        inside = [size for file, size in self.sizes.items() if path in file.parents]
        if inside or not path.exists():
            return sum(inside) if inside else None
        return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())


def total(ranges: Iterable[Range]) -> Range:
    """The sum of ranges."""
    known = list(ranges)
    return sum(low for low, _ in known), sum(high for _, high in known)


def central(amounts: Range) -> float:
    """The one estimate between at least and at most: as far from each by factors, or half of what may be nothing."""
    low, high = amounts
    return sqrt(low * high) if low > 0 else high / 2


def extrapolated(values: Sequence[float], count: int) -> Range:
    """The sum over `count` rows with a 95% interval, from the values of a random sample of at least two."""
    from statistics import mean, stdev

    middle, error = mean(values) * count, 1.96 * stdev(values) / sqrt(len(values)) * count
    return max(0.0, middle - error), middle + error
