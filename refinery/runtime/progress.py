"""One progress bar per stage on stderr, from the first process. Without a terminal, a plain line is printed from time to time."""

import math
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from refinery.runtime.process import is_main_process
from refinery.text import printable

_PLAIN_EVERY_SECONDS = 15.0
_DRAWN_EVERY_SECONDS = 0.25


class Progress:
    """Counts rows of `total`. The text from `beside` is shown next to the count; it is called only when something is drawn."""

    def __init__(self, title: str, *, total: int, beside: Callable[[], str] = lambda: "") -> None:
        self.title, self.total, self.done = printable(title), total, 0
        self._beside = beside
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[beside]}", markup=False),
        )
        is_main = is_main_process()
        self._bar = RichProgress(*columns, console=Console(stderr=True)) if is_main and sys.stderr.isatty() else None
        self._every = _DRAWN_EVERY_SECONDS if self._bar else _PLAIN_EVERY_SECONDS if is_main else math.inf
        self._drawn = time.monotonic()

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, beside="")
        return self

    def advance(self, rows: int = 1) -> None:
        """Count one or more rows."""
        self.done += rows
        if time.monotonic() - self._drawn > self._every:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        if self._bar:
            self._bar.update(self._task, completed=self.done, beside=printable(self._beside()))
        else:
            print(f"{self.title}: {self.done}/{self.total} {printable(self._beside())}", file=sys.stderr, flush=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._bar:
            self._draw()
            self._bar.stop()
