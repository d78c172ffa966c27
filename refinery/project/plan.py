"""What a run of a project would do, before it does anything: each step, what it will cost, how long it will take, and what it needs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, takewhile
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.table import Table
from rich.text import Text

from refinery.errors import RefineryError
from refinery.passages.sources import estimate_count
from refinery.project.jobs import Job
from refinery.project.state import changes, is_done, sources_of
from refinery.runtime.forecast import Expected, Forecast, Range, total
from refinery.runtime.recipes.stages import stages

# The module of a command that is no stage, by its name; None if there is no such command.
CommandOf = Callable[[str], ModuleType | None]

_HOUR, _MINUTE, _GB = 3600.0, 60.0, 1e9
_UNKNOWN_TIME = (
    "Unknown times: once a step's inputs exist, `refinery infer RECIPE --dry-run --pilot 20` (and `refinery distill`) measures, and "
    "`refinery train RECIPE --dry-run` counts steps and tokens."
)
_COLUMNS = ("rows", "calls", "dollars", "time", "GPU hours", "disk")


@dataclass(frozen=True, slots=True)
class Planned:
    """A step with its state (`done`, `to do`, or `to do again` with what has changed) and, if it is to be done, its forecast.

    `entry` is the step in the project's file, of which this may be one variant among others.
    """

    name: str
    state: str
    forecast: Forecast | None
    entry: str = ""


def plan_of(jobs: Mapping[str, Job], folder: Path, command_of: CommandOf = lambda _: None) -> list[Planned]:
    """The plan of every job, in order. A step is to be done again if one that it needs is."""
    planned: dict[str, Planned] = {}
    files = _Files()
    for job in jobs.values():
        state = _state(job, jobs, folder, waits=any(planned[name].forecast for name in job.needs))
        forecast = None if state == "done" else _forecast(job, files, command_of)
        if forecast and _shares_replies(job, jobs):
            forecast = _from_nothing(forecast)
        files.add(job, forecast)
        planned[job.name] = Planned(job.name, state, forecast, job.entry)
    return list(planned.values())


def print_plan(planned: Sequence[Planned]) -> None:
    """Print the plan as a table, with its sums; the variants of a step share a line."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("step", no_wrap=True)
    table.add_column("")
    for name in (*_COLUMNS, "memory"):
        table.add_column(name, justify="right", no_wrap=name != "memory")
    for steps in _by_entry(planned):
        table.add_row(*_titles(steps), *_cells([step.forecast for step in steps if step.forecast]))
    todo = [step.forecast for step in planned if step.forecast]
    if todo:
        table.add_row("together", "", *("", *_cells(todo)[1:]))
    console = Console(width=190)
    console.print(table)
    if any(forecast.seconds is None for forecast in todo):
        console.print(_UNKNOWN_TIME, highlight=False)


@dataclass(slots=True)
class _Files:
    """What files will have once the steps so far are done."""

    rows: dict[Path, int] = field(default_factory=dict[Path, int])
    sizes: dict[Path, float] = field(default_factory=dict[Path, float])

    @property
    def expected(self) -> Expected:
        """What a step that begins now will find."""
        return Expected(self.rows_of, self.bytes_of)

    def add(self, job: Job, forecast: Forecast | None) -> None:
        """Remember what a step that is to be done will write."""
        if forecast is not None:
            self.rows.update(forecast.writes)
            if job.output and forecast.disk_bytes and any(forecast.disk_bytes):
                self.sizes[job.output] = forecast.disk_bytes[1]

    def rows_of(self, path: Path) -> int | None:
        if path in self.rows:
            return self.rows[path]
        inside = [count for file, count in self.rows.items() if path in file.parents]
        if inside or not path.is_file():
            return sum(inside) if inside else None
        with path.open("rb") as lines:
            return sum(1 for _ in lines)

    def bytes_of(self, path: Path) -> int | None:
        if path in self.sizes:
            return round(self.sizes[path])
        inside = [size for file, size in self.sizes.items() if path in file.parents]
        if inside or not path.exists():
            return round(sum(inside)) if inside else None
        return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())


def _state(job: Job, jobs: Mapping[str, Job], folder: Path, *, waits: bool) -> str:
    sources = sources_of(job, jobs)
    if not waits and is_done(job, sources, folder):
        return "done"
    changed = changes(job, sources, folder)
    return f"again: {', '.join(changed)}" if changed else "to do"


def _shares_replies(job: Job, jobs: Mapping[str, Job]) -> bool:
    """Whether the step keeps its replies in the store of a step that it waits for, where it may find all of them."""
    store = _store(job)
    return store is not None and any(_store(jobs[name]) == store for name in job.needs)


def _store(job: Job) -> str | None:
    return job.values.get("store") if isinstance(job.values, Mapping) else None


def _from_nothing(forecast: Forecast) -> Forecast:
    """The forecast of a step that may be free."""
    ranges = {name: (0.0, value[1]) for name in ("calls", "dollars", "seconds") if (value := getattr(forecast, name))}
    return replace(forecast, **ranges)


def _forecast(job: Job, files: _Files, command_of: CommandOf) -> Forecast:
    """The job's forecast; an empty one where it cannot be made, because a plan must not stop what can run."""
    try:
        if job.stage:
            first = stages()[job.stage].forecast(job.words[0], job.words[1:], files.expected)
        else:
            first = _of_command(job, files, command_of)
        if not job.then:
            return first
        files.rows.update(first.writes)
        return _sum([first, *(_of_words(words, files, command_of) for words in job.then)])
    except (RefineryError, OSError, ImportError):
        return Forecast(dollars=None, seconds=None)


def _of_command(job: Job, files: _Files, command_of: CommandOf) -> Forecast:
    source = next(takewhile(lambda word: not word.startswith("-"), job.words), "")
    if job.output is None or job.output.suffix != ".jsonl" or not Path(source).exists():
        return _of_words((job.command, *job.words), files, command_of)
    count = estimate_count(Path(source))
    return Forecast(count, writes={job.output: count})


def _of_words(words: Sequence[str], files: _Files, command_of: CommandOf) -> Forecast:
    """What a command itself says; nothing for one that costs nothing worth a plan."""
    if says := getattr(command_of(words[0]), "forecast", None):
        return says(words[1:], files.expected)
    runs_models = any(word.startswith("output_dir=") for word in words)
    return Forecast(dollars=None, seconds=None, gpu_seconds=None) if runs_models else Forecast()


def _by_entry(planned: Sequence[Planned]) -> Iterator[list[Planned]]:
    for _, steps in groupby(planned, key=lambda step: step.entry or step.name):
        yield list(steps)


def _titles(steps: Sequence[Planned]) -> tuple[str, Text]:
    if len(steps) == 1:
        return steps[0].name, Text(steps[0].state)
    done = sum(step.forecast is None for step in steps)
    again = any(step.state.startswith("again") for step in steps)
    return f"{steps[0].entry} ({len(steps)} runs)", Text(
        "done" if done == len(steps) else f"{done} done" if done else "again" if again else "to do"
    )


def _sum(todo: Sequence[Forecast]) -> Forecast:
    """Together; unknown if it is unknown of one."""

    def known(ranges: list[Range | None]) -> Range | None:
        found = [each for each in ranges if each is not None]
        return total(found) if len(found) == len(ranges) else None

    return Forecast(
        rows=todo[0].rows,
        writes={file: rows for forecast in todo for file, rows in forecast.writes.items()},
        calls=known([forecast.calls or (0, 0) for forecast in todo]),
        dollars=known([forecast.dollars for forecast in todo]),
        seconds=known([forecast.seconds for forecast in todo]),
        memory_bytes=max((forecast.memory_bytes or 0 for forecast in todo), default=None),
        gpu_seconds=known([forecast.gpu_seconds for forecast in todo]),
        disk_bytes=known([forecast.disk_bytes for forecast in todo]),
    )


def _cells(todo: Sequence[Forecast]) -> list[str]:
    """What the forecasts are together: rows, calls, dollars, time, GPU hours, disk and memory."""
    rows = [forecast.rows for forecast in todo if forecast.rows is not None]
    calls, memory = (
        total([forecast.calls for forecast in todo if forecast.calls]),
        max((forecast.memory_bytes or 0 for forecast in todo), default=0),
    )
    return [
        f"{sum(rows):,}" if rows else "",
        _range(calls, "{:,.0f}") if any(calls) else "",
        _cell([forecast.dollars for forecast in todo], lambda dollars: _range(dollars, "{:,.2f}")),
        _cell([forecast.seconds for forecast in todo], _time),
        _cell([forecast.gpu_seconds for forecast in todo], lambda seconds: _range((seconds[0] / _HOUR, seconds[1] / _HOUR), "{:,.1f}")),
        _cell([forecast.disk_bytes for forecast in todo], lambda size: _range((size[0] / _GB, size[1] / _GB), "{:,.1f}") + " GB"),
        f"{memory / 2**30:,.1f} GiB" if memory else "",
    ]


def _cell(values: Sequence[Range | None], shown: Callable[[Range], str]) -> str:
    """The sum of what is known, and `+ ?` if something is not."""
    known = total([value for value in values if value is not None])
    if None not in values:
        return shown(known) if any(known) else ""
    return f"{shown(known)} + ?" if any(known) else "unknown"


def _range(values: Range, form: str) -> str:
    low, high = (form.format(value) for value in values)
    return low if low == high else f"{low} to {high}"


def _time(seconds: Range) -> str:
    return (
        _range((seconds[0] / _HOUR, seconds[1] / _HOUR), "{:,.1f}") + " h"
        if seconds[1] > _HOUR
        else _range((seconds[0] / _MINUTE, seconds[1] / _MINUTE), "{:,.0f}") + " min"
    )
