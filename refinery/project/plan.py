"""What a run of a project would do, before it does anything: each step, what it will cost, how long it will take, and what it needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from refinery.errors import RefineryError
from refinery.passages.sources import estimate_count
from refinery.project.jobs import Job
from refinery.project.state import changes, is_done, sources_of
from refinery.runtime.forecast import Forecast, Range, total
from refinery.runtime.stages import stages

_HOUR, _MINUTE = 3600.0, 60.0


@dataclass(frozen=True, slots=True)
class Planned:
    """A step with its state (`done`, `to do`, or `to do again` with what has changed) and, if it is to be done, its forecast."""

    name: str
    state: str
    forecast: Forecast | None


def plan_of(jobs: Mapping[str, Job], folder: Path) -> list[Planned]:
    """The plan of every job, in order. A step is to be done again if one that it needs is."""
    planned: dict[str, Planned] = {}
    expected: dict[Path, int] = {}
    for job in jobs.values():
        state = _state(job, jobs, folder, waits=any(planned[name].forecast for name in job.needs))
        forecast = None if state == "done" else _forecast(job, expected)
        expected.update(forecast.writes if forecast else {})
        planned[job.name] = Planned(job.name, state, forecast)
    return list(planned.values())


def print_plan(planned: Sequence[Planned]) -> None:
    """Print the plan as a table, with its sums."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name, justify in (("step", "left"), ("", "left"), ("rows", "right"), ("calls", "right"), ("dollars", "right"), ("time", "right")):
        table.add_column(name, justify="right" if justify == "right" else "left", no_wrap=True)
    table.add_column("memory", justify="right")
    todo = [step.forecast for step in planned if step.forecast]
    for step in planned:
        table.add_row(step.name, Text(step.state), *_cells(step.forecast))
    if todo:
        table.add_row("together", "", *_cells(_sum(todo)))
        if any(forecast.seconds is None for forecast in todo):
            table.add_row("", "", "", "", "", "and the unknown")
    Console(width=140).print(table)


def _state(job: Job, jobs: Mapping[str, Job], folder: Path, *, waits: bool) -> str:
    sources = sources_of(job, jobs)
    if not waits and is_done(job, sources, folder):
        return "done"
    changed = changes(job, sources, folder)
    return f"again: {', '.join(changed)}" if changed else "to do"


def _forecast(job: Job, expected: dict[Path, int]) -> Forecast:
    """The job's forecast; an empty one where it cannot be made, because a plan must not stop what can run."""

    def rows_of(path: Path) -> int | None:
        if path in expected or not path.is_file():
            return expected.get(path)
        with path.open("rb") as lines:
            return sum(1 for _ in lines)

    try:
        if job.stage:
            return stages()[job.stage].forecast(job.words[0], job.words[1:], rows_of)
        return _of_command(job)
    except (RefineryError, OSError, ImportError):
        return Forecast(dollars=None, seconds=None)


def _of_command(job: Job) -> Forecast:
    source = next(takewhile(lambda word: not word.startswith("-"), job.words), "")
    if job.output is None or job.output.suffix != ".jsonl" or not Path(source).exists():
        return Forecast()
    count = estimate_count(Path(source))
    return Forecast(count, writes={job.output: count})


def _sum(todo: Sequence[Forecast]) -> Forecast:
    dollars = [forecast.dollars for forecast in todo]
    return Forecast(
        calls=total([forecast.calls for forecast in todo if forecast.calls]),
        dollars=None if None in dollars else total([each for each in dollars if each]),
        seconds=total([forecast.seconds for forecast in todo if forecast.seconds]),
        memory_bytes=max((forecast.memory_bytes or 0 for forecast in todo), default=None),
    )


def _cells(forecast: Forecast | None) -> list[str]:
    if forecast is None:
        return [""] * 5
    dollars = "unknown" if forecast.dollars is None else _range(forecast.dollars, "{:,.2f}") if any(forecast.dollars) else ""
    return [
        f"{forecast.rows:,}" if forecast.rows is not None else "",
        _range(forecast.calls, "{:,.0f}") if forecast.calls and any(forecast.calls) else "",
        dollars,
        "unknown" if forecast.seconds is None else _time(forecast.seconds) if any(forecast.seconds) else "",
        f"{forecast.memory_bytes / 2**30:,.1f} GiB" if forecast.memory_bytes else "",
    ]


def _range(values: Range, form: str) -> str:
    low, high = (form.format(value) for value in values)
    return low if low == high else f"{low} to {high}"


def _time(seconds: Range) -> str:
    return (
        _range((seconds[0] / _HOUR, seconds[1] / _HOUR), "{:,.1f}") + " h"
        if seconds[1] > _HOUR
        else _range((seconds[0] / _MINUTE, seconds[1] / _MINUTE), "{:,.0f}") + " min"
    )
