"""One progress bar per stage on stderr; without a terminal, a plain line now and then."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

_PLAIN_EVERY_SECONDS = 15.0


class Progress:
    """Counts rows of `total`; keyword values given to `advance` stand beside the count."""

    def __init__(self, title: str, *, total: int) -> None:
        self.title, self.total, self.done = title, total, 0
        self._said = time.monotonic()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[beside]}"),
        )
        self._bar = RichProgress(*columns, console=Console(stderr=True)) if sys.stderr.isatty() else None

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, beside="")
        return self

    def advance(self, **values: Any) -> None:
        """Count one row."""
        self.done += 1
        beside = " ".join(f"{name}={value}" for name, value in values.items())
        if self._bar:
            self._bar.update(self._task, advance=1, beside=beside)
        elif time.monotonic() - self._said > _PLAIN_EVERY_SECONDS:
            self._said = time.monotonic()
            print(f"{self.title}: {self.done}/{self.total} {beside}", file=sys.stderr, flush=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()
