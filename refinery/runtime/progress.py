"""One progress bar per stage on stderr, from the first process. Without a terminal, a plain line is printed from time to time.

The bar is redrawn and the line printed also while no row ends, because a single row may take minutes.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Column
from rich.text import Text

from refinery.runtime.process import is_main_process
from refinery.text import printable

_PLAIN_EVERY_SECONDS = 15.0
_DRAWN_PER_SECOND = 4


class Progress:
    """Counts rows of `total`, of which `start` are done already.

    The text from `below` is shown below the bar; it is called from another thread, a few times per second.
    """

    def __init__(self, title: str, *, total: int, start: int = 0, below: Callable[[], str] = lambda: "") -> None:
        self.title, self.total, self.done, self._start = printable(title), total, start, start
        self._below, self._started, self._ended = below, time.monotonic(), threading.Event()
        self._bar = self._lines = None
        if not is_main_process():
            return
        if sys.stderr.isatty():
            self._bar = _Bar(self._text, console=Console(stderr=True))
        else:
            self._lines = threading.Thread(target=self._print_lines, daemon=True)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, completed=self.done)
        elif self._lines:
            self._lines.start()
        return self

    def advance(self, rows: int = 1) -> None:
        """Count one or more rows."""
        self.done += rows
        if self._bar:
            self._bar.update(self._task, completed=self.done)

    def _text(self) -> str:
        return printable(self._below())

    def _print_lines(self) -> None:
        while not self._ended.wait(_PLAIN_EVERY_SECONDS):
            print(f"{self.title}: {self.done}/{self.total}{self._left()} {self._text()}", file=sys.stderr, flush=True)

    def _left(self) -> str:
        """How long the rest takes at the rate so far."""
        if self.done == self._start:
            return ""
        seconds = (time.monotonic() - self._started) * (self.total - self.done) / (self.done - self._start)
        return f", about {seconds / 60:.0f} min left" if seconds >= 120 else f", about {seconds:.0f} s left"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._ended.set()
        if self._bar:
            self._bar.stop()
        elif self._lines:
            self._lines.join()


class _Bar(RichProgress):
    """Title, bar, count and remaining time in the first line, and the text below them."""

    def __init__(self, below: Callable[[], str], *, console: Console) -> None:
        self._below = below
        super().__init__(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            console=console,
            expand=True,
            refresh_per_second=_DRAWN_PER_SECOND,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bar, and the text if there is any."""
        yield self.make_tasks_table(self.tasks)
        if text := self._below():
            yield Text(text, style="dim")
