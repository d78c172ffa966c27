"""One progress bar per stage on stderr, from the first process. Without a terminal, a plain line is printed from time to time.

The bar is redrawn and the line printed also while no row ends, because a single row may take minutes.
"""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from refinery.runtime.observe import telemetry
from refinery.runtime.run.process_rank import is_main_process
from refinery.runtime.run.progress_file import ProgressFile
from refinery.text import printable

_PLAIN_EVERY_SECONDS = 15.0


class Progress:
    """Counts rows of `total`, of which `start` are done already.

    The text from `below` is shown below the bar; it is called from another thread, a few times per second. With a run's `folder`, the
    progress is also written there for `refinery watch`, and told to metrics (`observe.py`), with what `details` gives.
    """

    def __init__(
        self,
        title: str,
        *,
        total: int,
        start: int = 0,
        below: Callable[[], str] = lambda: "",
        folder: Path | None = None,
        details: Callable[[], dict[str, Any]] = lambda: {},
    ) -> None:
        self.title, self.total, self.done, self._start = printable(title), total, start, start
        self._below, self._details, self._started, self._ended = below, details, time.monotonic(), threading.Event()
        self._bar = self._lines = self._file = None
        if not is_main_process():
            return
        if folder is not None:
            self._file = ProgressFile(folder, self._values)
        if sys.stderr.isatty():
            from refinery.runtime.run.progress_bar import ProgressBar

            self._bar = ProgressBar(self._text)
        else:
            self._lines = threading.Thread(target=self._print_lines, daemon=True)

    def __enter__(self) -> Self:
        if self._file:
            self._file.__enter__()
            telemetry.report_run(self.title, self._values)
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
        if self._file:
            self._file.__exit__(kind, error, traceback)
            telemetry.end_run(self.title)

    def _values(self) -> dict[str, Any]:
        seconds = time.monotonic() - self._started
        own = {"title": self.title, "done": self.done, "total": self.total, "start": self._start, "seconds": seconds, "text": self._below()}
        return own | self._details()
