"""The figures of distill runs: their costs, the balance of their labels, and the outcomes of their questions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refinery.reporting.endpoints import spent_by_role, total_cost
from refinery.reporting.figures import Panel, draw_bars, draw_shares
from refinery.runtime.run.run_dir import read_metrics


def panels(paths: Sequence[Path]) -> list[Panel]:
    """The panels for these runs. Raises RunDirError for an unfinished run."""
    runs = {path.resolve().name: read_metrics(path) for path in paths}
    found = [Panel("outcomes", "Outcomes of the questions", lambda axes: draw_shares(axes, _outcomes(runs), label="share of questions"))]
    if balance := {name: _probs(run["guards"]["label_balance"]) for name, run in runs.items() if run["guards"]["label_balance"]}:
        found.append(Panel("labels", "Label balance", lambda axes: draw_shares(axes, balance, label="share of labels")))
    if tokens := {name: _per_question(run) for name, run in runs.items() if spent_by_role(run)}:
        found.append(Panel("tokens", "Teacher tokens", lambda axes: draw_bars(axes, tokens, label="tokens per question")))
    if costs := {name: {"cost": _exact(cost)} for name, run in runs.items() if (cost := total_cost(run)) is not None}:
        found.append(Panel("cost", "Teacher cost", lambda axes: draw_bars(axes, costs, label="US dollars")))
    rows = {name: {"rows": _exact(run["questions_labelled"])} for name, run in runs.items()}
    found.append(Panel("rows", "Questions with labels (RQ-RAG Fig. 6)", lambda axes: draw_bars(axes, rows, label="questions")))
    return found


def _outcomes(runs: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    names = {"labeled": "questions_labelled", "without rows": "questions_without_rows"}
    counts = {
        run: {name: metrics[key] for name, key in names.items()}
        | {f"rejected: {why}": n for why, n in metrics["rejected_by_reason"].items()}
        for run, metrics in runs.items()
    }
    return {run: _probs(counted) for run, counted in counts.items()}


def _per_question(run: dict[str, Any]) -> dict[str, tuple[float, float, float]]:
    """Tokens of all endpoints."""
    kinds = {"prompt": "num_prompt_tokens", "completion": "num_completion_tokens"}
    return {name: _exact(sum(spent[key] for spent in spent_by_role(run).values()) / run["questions"]) for name, key in kinds.items()}


def _exact(value: float) -> tuple[float, float, float]:
    """A value without an interval."""
    return value, value, value


def _probs(counts: dict[str, int]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items() if count}
