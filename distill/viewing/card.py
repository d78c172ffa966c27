"""The card of a distill run: who labeled what, how many questions have labels, and what they cost."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distill.viewing.summary import rejected_lines
from refinery.reporting.endpoints import cached_in_full, spent_by_role, total_cost
from refinery.reporting.pages.content import Card, Table
from refinery.reporting.pages.facts import origin, present, shown
from refinery.runtime.run.run_dir import RunDir, read_metrics, read_run


def run_card(path: Path) -> Card:
    """The card; a run that has not finished has no counts."""
    record, metrics = read_run(path), _metrics(path)
    recipe = record["recipe"]
    facts = [
        ("task", " ".join([recipe["task"], *(f"{name}={shown(value)}" for name, value in recipe["options"].items())])),
        ("labeled by", _labeled_by(recipe, metrics)),
        ("questions", "\n".join(recipe["questions"])),
        *_counts(metrics),
        *_rejected(metrics, path),
        *origin(record),
    ]
    return {"name": path.resolve().name, "facts": present(facts), "tables": _tables(metrics)}


def digest(path: Path) -> list[tuple[str, str]]:
    """What matters about the run in its project."""
    recipe, metrics = read_run(path)["recipe"], _metrics(path)
    return present([("task", recipe["task"]), ("labeled by", _labeled_by(recipe, metrics)), *_counts(metrics)])


def _metrics(path: Path) -> dict[str, Any]:
    return read_metrics(path) if RunDir(path).finished else {}


def _labeled_by(recipe: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """The teacher, unless the run has finished without asking it."""
    teacher, target, asked = recipe.get("teacher"), recipe.get("target") or {}, metrics.get("teacher")
    is_asked = not asked or asked.get("calls", 0) + asked.get("replies_from_store", 0) > 0
    return teacher["model"] if teacher and is_asked else target.get("base", "the dataset's annotations")


def _counts(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not metrics:
        return [("state", "not finished")]
    paid = total_cost(metrics)
    bound = "".join({cached_in_full(spent) for spent in spent_by_role(metrics).values()})
    cost = f"${paid:.4f}{bound}" if paid is not None else ""
    labeled = f"{metrics['questions_labelled']:,} of {metrics['questions']:,} questions, {metrics['rows']:,} rows"
    return [("labels", labeled), ("cost", cost)]


def _rejected(metrics: Mapping[str, Any], path: Path) -> list[tuple[str, str]]:
    """What has no label, with the causes below it; empty if everything has one."""
    facts = dict[str, list[str]]()
    for name, text in rejected_lines(metrics, path):
        facts.setdefault(name or list(facts)[-1], []).append(text)
    return [(name, "\n".join(lines)) for name, lines in facts.items() if lines != ["none"]]


def _tables(metrics: Mapping[str, Any]) -> list[Table]:
    """The rows by split, and by label if the task has labels."""
    counts = {"split": metrics.get("rows_by_split", {}), "label": metrics.get("guards", {}).get("label_balance", {})}
    return [
        {"caption": f"Rows by {name}", "columns": [name, "rows"], "rows": [[key, count] for key, count in found.items()]}
        for name, found in counts.items()
        if found
    ]
