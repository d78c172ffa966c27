"""Compare runs: every system's metrics with their intervals, and the significance of its differences from a baseline."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from infer.evaluation.evaluate import groups_in
from infer.evaluation.finished_runs import StoredRun, stored_runs
from infer.evaluation.rows_by_id import RowsById
from infer.evaluation.scores import SCORES_FILE, QuestionScores
from infer.evaluation.tables.comparison import Line, System, comparison_text, main_metric, unequal
from refinery.errors import RunDirError
from refinery.metrics.bootstrap import counted_measure, counted_paired
from refinery.metrics.registry import find_metric
from refinery.reporting.question_groups import ALL
from refinery.reporting.tables import TableFormat
from refinery.runtime.files.jsonl import LineIndex
from refinery.text import printable


def print_comparison(
    runs: Sequence[Path],
    *,
    baseline: str | None = None,
    metrics: Sequence[str] = (),
    breakdown: bool = False,
    force: bool = False,
    table_format: TableFormat = "terminal",
    wide: bool = False,
) -> None:
    """Write the tables of `compare` to stdout. In a terminal, they have what fits in 80 columns unless they are `wide`."""
    lines = compare(runs, baseline=baseline, metrics=metrics, breakdown=breakdown, force=force)
    narrow = () if wide or table_format != "terminal" else metrics or [main_metric(list(lines[0].scores))]
    sys.stdout.write(comparison_text(lines, table_format, narrow=narrow))
    if table_format == "csv":  # CSV has no place for remarks
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
    systems = systems_of(stored)
    if not force:
        check_comparable(stored)
    against = _find(systems, baseline) if baseline else None
    shown = shown_metrics(systems, metrics)
    tallies = {run.path: _tallies(run, [system for system in systems if system.run is run], shown, against) for run in stored}
    groups = list(dict.fromkeys(group for of_run in tallies.values() for _, group in of_run)) if breakdown else [ALL]
    found = [(system, group, tallies[system.run.path].get((system.label, group))) for group in groups for system in systems]
    return [tally.line(system, group) for system, group, tally in found if tally]


def shown_metrics(systems: Sequence[System], asked: Sequence[str]) -> list[str]:
    """The metrics asked for, or those that papers report on the datasets. Raises PluginError for one that does not exist."""
    for metric in asked:
        find_metric(metric)
    return list(asked) or list(dict.fromkeys(metric for system in systems for metric in system.results["default_metrics"]))


def systems_of(stored: Sequence[StoredRun]) -> list[System]:
    """Every system of the runs; the label of one whose name another run has too names its run."""
    names = [name for run in stored for name in run.metrics["results"]]
    return [
        System(name if names.count(name) == 1 else f"{name} ({run.path})", name, run) for run in stored for name in run.metrics["results"]
    ]


def check_comparable(stored: Sequence[StoredRun]) -> None:
    """Raise RunDirError, which names the difference, for the first run that cannot be compared with the others."""
    first, corpus_run = stored[0], None
    for run in stored:
        if run.metrics["questions_hash"] != first.metrics["questions_hash"]:
            raise _other_questions(run, first)
        if run.metrics["retriever"] is None:
            continue
        corpus_run = corpus_run or run
        if _corpus(run) != _corpus(corpus_run):
            raise RunDirError(
                f"{run.path}: searches a different corpus than {corpus_run.path} ({_corpus(run)} and {_corpus(corpus_run)}). "
                "A difference may come from the corpus instead of the method. Run both on the same corpus, or pass --force."
            )


def _other_questions(run: StoredRun, first: StoredRun) -> RunDirError:
    known = LineIndex()
    for row in first.scores():
        known.add(row.question_id, 0)
    count = shared = 0
    for row in run.scores():
        count, shared = count + 1, shared + (row.question_id in known)
    return RunDirError(
        f"{run.path}: answers different questions than {first.path} ({shared} ids in common of {count} and {len(known)}; "
        f"questions_hash {run.metrics['questions_hash']} and {first.metrics['questions_hash']}). "
        "Their means cannot be compared. Run both on the same questions, or pass --force."
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


class _Tally:
    """The number of questions in a group by score of one system, in percent, and by difference from the baseline, for each metric."""

    def __init__(self) -> None:
        self.questions = self.shared = 0
        self._scores: dict[str, Counter[float]] = {}
        self._differences: dict[str, Counter[float]] = {}
        self._alone: set[str] = set()  # metrics that apply to a shared question in one of the two runs

    def add(self, scores: Mapping[str, float], baseline: Mapping[str, float] | None, metrics: Sequence[str]) -> None:
        """Count one question; `baseline` are the other system's scores, if it answered the question."""
        self.questions += 1
        self.shared += baseline is not None
        for metric in metrics:
            mine, theirs = scores.get(metric), None if baseline is None else baseline.get(metric)
            if mine is not None:
                self._scores.setdefault(metric, Counter())[100 * mine] += 1
            if mine is not None and theirs is not None:
                self._differences.setdefault(metric, Counter())[100 * mine - 100 * theirs] += 1
            elif baseline is not None and (mine is not None or theirs is not None):
                self._alone.add(metric)

    def line(self, system: System, group: str) -> Line:
        """The means with their intervals. A single question has no interval, and allows no conclusion about a difference."""
        scores = {metric: counted_measure(counts) for metric, counts in self._scores.items()}
        several = {metric: counts for metric, counts in self._differences.items() if counts.total() > 1}
        differences = {metric: counted_paired(counts) for metric, counts in several.items() if metric not in self._alone}
        fewer = {metric: counts.total() for metric, counts in self._scores.items() if counts.total() < self.questions}
        return Line(system, group, self.questions, self.shared, scores, differences, fewer)


def _tallies(run: StoredRun, systems: Sequence[System], metrics: Sequence[str], baseline: System | None) -> dict[tuple[str, str], _Tally]:
    """The tallies of a run by the label of the system and the group. Rows are read one by one, with those of the baseline beside them."""
    tallies: dict[tuple[str, str], _Tally] = {}
    theirs = RowsById(baseline.run.path / SCORES_FILE, QuestionScores) if baseline else None
    for row in run.scores():
        other = theirs and theirs.get(row.question_id)
        for system in systems:
            against = other.scores[baseline.name] if other and baseline and system is not baseline else None
            for group in groups_in(row):
                tallies.setdefault((system.label, group), _Tally()).add(row.scores[system.name], against, metrics)
    return tallies
