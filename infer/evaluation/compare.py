"""Compare runs: every system's metrics with their intervals, and the significance of its differences from a baseline."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from infer.evaluation.evaluate import default_metrics, group_rows
from infer.evaluation.finished_runs import StoredRun, stored_runs
from infer.evaluation.scores import QuestionScores
from refinery.errors import RunDirError
from refinery.metrics.bootstrap import Difference, Interval, interval, paired
from refinery.metrics.registry import find_metric
from refinery.reporting.tables import TableFormat, render_table


@dataclass(frozen=True, slots=True)
class System:
    """One system of a run; `label` distinguishes it from systems of the same name in other runs."""

    label: str
    name: str
    run: StoredRun
    rows: list[QuestionScores]


@dataclass(frozen=True, slots=True)
class Line:
    """One system on one group of questions: scores in percent, and differences from the baseline, if any, in percentage points.

    `shared` counts the questions that the baseline answered too; differences are computed over these.
    """

    system: System
    group: str
    questions: int
    shared: int
    scores: dict[str, Interval]
    differences: dict[str, Difference]


def print_comparison(
    runs: Sequence[Path],
    *,
    baseline: str | None = None,
    metrics: Sequence[str] = (),
    breakdown: bool = False,
    force: bool = False,
    table_format: TableFormat = "terminal",
) -> None:
    """Write the table of `compare` to stdout."""
    lines = compare(runs, baseline=baseline, metrics=metrics, breakdown=breakdown, force=force)
    sys.stdout.write(render_table(*(_numbers(lines) if table_format == "csv" else _cells(lines)), table_format))


def compare(
    runs: Sequence[Path], *, baseline: str | None = None, metrics: Sequence[str] = (), breakdown: bool = False, force: bool = False
) -> list[Line]:
    """One line per system, or with `breakdown` per system and group. A demo's folder expands to its infer runs.

    `baseline` is a system's label, or the folder of a run with one system; differences are computed over the questions that both
    answered. `metrics` defaults to those that papers report on the datasets. Raises RunDirError if the runs answer different questions or
    search different corpora, unless `force` is set.
    """
    stored = [run for path in runs for run in stored_runs(path)]
    systems = _systems(stored)
    for metric in metrics:
        find_metric(metric)
    if not force:
        _check_comparable(stored, {system.run.path: system.rows for system in systems})
    against = _find(systems, baseline) if baseline else None
    shown = list(metrics) or list(dict.fromkeys(metric for s in systems for metric in default_metrics(s.rows, s.name)))
    groups = list(dict.fromkeys(group for system in systems for group in group_rows(system.rows))) if breakdown else ["all"]
    lines = [_line(system, group, shown, against) for group in groups for system in systems]
    return [line for line in lines if line.questions]


def _systems(stored: Sequence[StoredRun]) -> list[System]:
    names = [name for run in stored for name in run.metrics["results"]]
    systems = []
    for run in stored:
        rows = run.scores()
        for name in run.metrics["results"]:
            label = name if names.count(name) == 1 else f"{name} ({run.path})"
            systems.append(System(label, name, run, rows))
    return systems


def _check_comparable(stored: Sequence[StoredRun], rows: dict[Path, list[QuestionScores]]) -> None:
    """Raise RunDirError, which names the difference, for the first run that cannot be compared with the others."""
    first, corpus_run = stored[0], None
    ids = {row.question_id for row in rows[first.path]}
    for run in stored:
        if run.metrics["questions_hash"] != first.metrics["questions_hash"]:
            own = {row.question_id for row in rows[run.path]}
            raise RunDirError(
                f"{run.path}: answers different questions than {first.path} ({len(own & ids)} ids in common of {len(own)} and {len(ids)}; "
                f"questions_hash {run.metrics['questions_hash']} and {first.metrics['questions_hash']}). "
                "Their means cannot be compared. Run both on the same questions, or pass --force."
            )
        if run.metrics["retriever"] is None:
            continue
        corpus_run = corpus_run or run
        if _corpus(run) != _corpus(corpus_run):
            raise RunDirError(
                f"{run.path}: searches a different corpus than {corpus_run.path} ({_corpus(run)} and {_corpus(corpus_run)}). "
                "A difference may come from the corpus instead of the method. Run both on the same corpus, or pass --force."
            )


def _corpus(run: StoredRun) -> str:
    """The corpus's hash, or the retriever's name if the corpus does not have a hash."""
    return run.metrics["corpus_hash"] or run.metrics["retriever"]


def _find(systems: Sequence[System], name: str) -> System:
    found = [system for system in systems if system.label == name] or [s for s in systems if s.run.path == Path(name)]
    if len(found) != 1:
        fault = "no system has this name" if not found else "this run has several systems"
        raise RunDirError(f"baseline '{name}': {fault}. Choose one of: {', '.join(system.label for system in systems)}.")
    return found[0]


def _line(system: System, group: str, metrics: Sequence[str], baseline: System | None) -> Line:
    rows = group_rows(system.rows).get(group, [])
    scores = {metric: _percent(rows, system, metric) for metric in metrics}
    shared, differences = [], {}
    if baseline is not None and baseline is not system:
        theirs = {row.question_id: row for row in baseline.rows}
        shared = [row for row in rows if row.question_id in theirs]
        against = [theirs[row.question_id] for row in shared]
        differences = {metric: (_percent(shared, system, metric), _percent(against, baseline, metric)) for metric in metrics}
    return Line(
        system,
        group,
        len(rows),
        len(shared),
        {metric: interval(values) for metric, values in scores.items() if len(values)},
        {metric: paired(mine, theirs) for metric, (mine, theirs) in differences.items() if len(mine) == len(theirs) > 0},
    )


def _percent(rows: Sequence[QuestionScores], system: System, metric: str) -> np.ndarray:
    """Scores, in percent, of the rows that the metric applies to."""
    return 100 * np.array([row.scores[system.name][metric] for row in rows if metric in row.scores[system.name]])


def _cells(lines: Sequence[Line]) -> tuple[list[str], list[list[str]]]:
    """A table for people: mean and interval in one cell; difference, interval and p in the next."""
    metrics, compared, groups = _columns(lines)
    header = ["system", *(["group"] if groups else []), "questions"]
    header += [column for metric in metrics for column in ([metric, f"{metric} difference"] if compared else [metric])]
    rows = []
    for line in lines:
        row = [line.system.label, *([line.group] if groups else []), str(line.questions)]
        for metric in metrics:
            row += [_interval_cell(line.scores.get(metric))] + ([_difference_cell(line, metric)] if compared else [])
        rows.append([*row, *(_cost(line).values())])
    return [*header, *_cost(lines[0])], rows


def _interval_cell(found: Interval | None) -> str:
    return f"{found.mean:.1f} [{found.low:.1f}, {found.high:.1f}]" if found else "-"


def _difference_cell(line: Line, metric: str) -> str:
    found = line.differences.get(metric)
    if found is None:
        return "-"
    fewer = f" on {line.shared}" if line.shared < line.questions else ""
    return f"{found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}] p={found.p:.4f}{fewer}"


def _numbers(lines: Sequence[Line]) -> tuple[list[str], list[list[str]]]:
    """A table for programs: one number per cell; a cell without a number is empty."""
    metrics, compared, _ = _columns(lines)
    fields = [("scores", field) for field in ("mean", "low", "high")]
    fields += [("differences", field) for field in ("mean", "low", "high", "p")] if compared else []
    named = {"scores": "", "differences": "difference "}
    header = ["system", "group", "questions", *(f"{metric} {named[kind]}{field}" for metric in metrics for kind, field in fields)]
    rows = [
        [line.system.label, line.group, str(line.questions)]
        + [_number(getattr(line, kind).get(metric), field) for metric in metrics for kind, field in fields]
        + list(_cost(line).values())
        for line in lines
    ]
    return [*header, *_cost(lines[0])], rows


def _number(found: Interval | None, field: str) -> str:
    return f"{getattr(found, field):.4f}" if found else ""


def _columns(lines: Sequence[Line]) -> tuple[list[str], bool, bool]:
    """The metrics, whether there is a baseline, and whether there are several groups."""
    metrics = list(dict.fromkeys(metric for line in lines for metric in line.scores))
    return metrics, any(line.differences for line in lines), len({line.group for line in lines}) > 1


def _cost(line: Line) -> dict[str, str]:
    """How the system searched, its mean cost per question over the whole run, and its failures and faults."""
    metrics: dict[str, Any] = line.system.run.metrics
    cost = metrics["results"][line.system.name]["cost_per_question"]
    faults = [f"{reason} {count}" for reason, count in metrics["results"][line.system.name].get("faults", {}).items()]
    return {
        "retriever": metrics["retriever"] or "-",
        "k": str(metrics["passages_per_query"] or "-"),
        "calls": f"{cost['calls']:.1f}",
        "tokens": f"{cost['prefill_tokens'] + cost['decode_tokens']:.0f}",
        "failed": str(metrics.get("failed", 0)),
        "faults": ", ".join(faults) or "-",
    }
