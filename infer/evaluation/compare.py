"""Compare runs: every system's metrics with their intervals, and the significance of its differences from a baseline."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from infer.evaluation.comparison_table import Line, System, comparison_text, unequal
from infer.evaluation.evaluate import default_metrics, group_rows
from infer.evaluation.finished_runs import StoredRun, stored_runs
from infer.evaluation.scores import QuestionScores
from refinery.errors import RunDirError
from refinery.metrics.bootstrap import interval, paired
from refinery.metrics.registry import find_metric
from refinery.reporting.tables import TableFormat
from refinery.text import printable


def print_comparison(
    runs: Sequence[Path],
    *,
    baseline: str | None = None,
    metrics: Sequence[str] = (),
    breakdown: bool = False,
    force: bool = False,
    table_format: TableFormat = "terminal",
) -> None:
    """Write the tables of `compare` to stdout."""
    lines = compare(runs, baseline=baseline, metrics=metrics, breakdown=breakdown, force=force)
    sys.stdout.write(comparison_text(lines, table_format))
    if table_format == "csv":  # which has no place for remarks
        sys.stderr.writelines(printable(f"{remark}\n") for remark in unequal(lines))


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
