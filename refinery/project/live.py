"""A run of a project as it goes on: the steps that are done, how far those at work have come, and those that wait.

All of it is read from the progress files that stages write, or else from the step's log. It is shown in the terminal, or as a line for each
step at work from time to time, and kept in a progress file of the project, from which `refinery watch PROJECT` shows the same.
"""

import re
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TextIO

from refinery.errors import RunDirError
from refinery.project.jobs import Job
from refinery.project.process import last_line, log_of
from refinery.project.state import STATE_FOLDER, finished_steps
from refinery.reporting.watch import Frame, duration, frame_from, frame_of, progress_text
from refinery.runtime.run.progress_file import ProgressFile, read_progress
from refinery.text import printable

_DRAWN_PER_SECOND = 2
_SHOWN = 120  # letters of a log's line
_LOGGER = re.compile(r"^(?:\w+\.)+\w+: ")


class LiveRun:
    """What a run of `jobs` shows within a `with` block, without a terminal every `line_seconds`. `begin` and `end` tell it of each step."""

    def __init__(self, jobs: Mapping[str, Job], folder: Path, *, line_seconds: float = 30.0) -> None:
        self._line_seconds = line_seconds
        self._jobs, self._folder, self._started = jobs, folder, time.monotonic()
        self._since, self._done = dict[str, float](), dict[str, str]()
        self._shown, self._ended = ExitStack(), threading.Event()

    def __enter__(self) -> Self:
        place = self._folder / STATE_FOLDER
        self._shown.enter_context(ProgressFile(place, self._values))
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live
            from rich.text import Text

            console = Console(file=sys.stderr)  # this one, also while a step in this process writes to its log
            drawn = Live(
                get_renderable=lambda: Text(frame_of(place).text), console=console, refresh_per_second=_DRAWN_PER_SECOND, transient=True
            )
            self._shown.enter_context(drawn)
        else:
            lines = threading.Thread(target=self._print_lines, args=(sys.stderr,), daemon=True)
            self._shown.callback(lines.join)
            self._shown.callback(self._ended.set)
            lines.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()

    def begin(self, name: str) -> None:
        """A step is at work."""
        self._since[name] = time.monotonic()

    def end(self, name: str, seconds: float | None) -> None:
        """A step is done, after so many seconds, or was already."""
        self._since.pop(name, None)
        self._done[name] = name if seconds is None else f"{name} {duration(seconds)}"

    def _values(self) -> dict[str, Any]:
        waiting = [name for name in self._jobs if name not in self._done and name not in self._since]
        lines = [("steps", ", ".join(self._done.values())), *((name, self.at_work(name)) for name in list(self._since))]
        own = {"title": f"run {self._folder.resolve().name}", "done": len(self._done), "total": len(self._jobs), "text": ""}
        own |= {"start": 0, "paced": False}  # its steps differ in length
        return own | {"seconds": time.monotonic() - self._started, "lines": [*lines, ("next", ", ".join(waiting))]}

    def at_work(self, name: str) -> str:
        """How far a step is: by its progress file, or else its log's last line, or else since when."""
        job, since = self._jobs[name], time.monotonic() - self._since[name]
        progress = read_progress(job.output) if job.output else None
        if progress is not None:
            return progress_text(progress)
        log = log_of(job, self._folder)
        said = _LOGGER.sub("", last_line(log))[:_SHOWN] if log.exists() else ""
        return f"for {duration(since)}" + (f": {said}" if said else "")

    def _print_lines(self, stream: TextIO) -> None:
        while not self._ended.wait(self._line_seconds):
            for name in list(self._since):
                print(printable(f"{name}: {self.at_work(name)}"), file=stream, flush=True)


def is_project(folder: Path) -> bool:
    """Whether steps were run in this folder."""
    return (folder / STATE_FOLDER).is_dir()


def project_frame(folder: Path) -> Frame:
    """What `refinery watch` shows of a project: its run, or if there is none now, what was done."""
    place = folder / STATE_FOLDER
    try:
        return frame_of(place)
    except RunDirError:  # nothing runs
        finished, begun = finished_steps(folder)
        rows = [("project", str(folder)), ("state", "not running"), ("done", ", ".join(finished)), ("begun", ", ".join(begun))]
        return frame_from(rows, ended=True)
