"""The lines with which a labeling run ends: in, rejected and why, balance, cost, files, and what to do next."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from distill.writing.rows import row_causes
from refinery.reporting.causes import REMEDIES, cause_lines
from refinery.reporting.endpoints import cached_in_full, spent_by_role, total_cost
from refinery.reporting.summary import counted, dollars, summary

_REMEDIES = REMEDIES | {"refused": "Name another model for them in `fallbacks`."}


def run_summary(metrics: dict[str, Any], folder: Path) -> str:
    """The lines about the run in `folder`."""
    questions, labeled = (metrics[name] for name in ("questions", "questions_labelled"))
    return summary(
        [
            ("in", f"{questions:,} questions, {labeled:,} of them labeled"),
            *rejected_lines(metrics, folder),
            ("rows", _balance(metrics["rows"], metrics["labels"])),
            ("agreement", _agreement(metrics)),
            ("cost", _cost(metrics)),
            ("files", f"{counted({f'{split}.jsonl': rows for split, rows in metrics['rows_by_split'].items()}) or 'no rows'} in {folder}"),
            ("next", f"refinery view {folder} --output {folder}.html"),
        ]
    )


def rejected_lines(metrics: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    """How many rows were rejected, and how many parts of labeled rows have no label, each with the most frequent causes below."""
    counts = {
        "rejected": metrics.get("rejected_by_reason", {}),
        "unlabeled": metrics.get("unlabeled_parts_by_reason", {}),  # one of a question's passages, or of its samples
    }
    if not counts["rejected"]:
        yield "rejected", "none"
    for (name, found), causes in zip(counts.items(), row_causes(folder), strict=True):
        if found:
            yield name, f"{sum(found.values()):,}: {counted(found)}. See failures.jsonl"
            yield from (("", line) for line in cause_lines(causes.report(), _REMEDIES))


def _balance(rows: int, labels: dict[str, int]) -> str:
    total = sum(labels.values())
    shares = ", ".join(f"{label} {count / total:.0%}" for label, count in sorted(labels.items()))
    return f"{rows:,}" + (f": {shares}" if shares else "")


def _agreement(metrics: dict[str, Any]) -> str:
    """How often samples and teachers agree; empty if each row was labeled once."""
    return "; ".join(f"{between} {_of_pairs(found)}" for between, found in metrics.get("agreement", {}).items() if found["pairs"])


def _of_pairs(found: dict[str, Any]) -> str:
    kappa = "" if found["kappa"] is None else f", kappa {found['kappa']:.2f}"
    return f"{found['raw']:.0%} of {found['pairs']:,} pairs{kappa}"


def _cost(metrics: dict[str, Any]) -> str:
    spent = spent_by_role(metrics)
    seconds = f"{metrics['seconds_labelling']:,.0f} s" if "seconds_labelling" in metrics else ""
    if len(spent) < 2:
        return ", ".join(filter(None, [*map(_of_endpoint, spent.values()), seconds]))
    of_each = [f"{role} {_of_endpoint(counts)}" for role, counts in spent.items()]
    return ", ".join(filter(None, [f"{dollars(total_cost(metrics))} in all", seconds])) + f": {'; '.join(of_each)}"


def _of_endpoint(spent: dict[str, Any]) -> str:
    stored = f" ({spent['replies_from_store']:,} more from the store)" if spent["replies_from_store"] else ""
    tokens = spent["num_prompt_tokens"] + spent["num_completion_tokens"]
    cached = f" ({spent['num_cached_tokens']:,} cached)" if spent.get("num_cached_tokens") else ""
    return f"{spent['calls']:,} calls{stored}, {tokens:,} tokens{cached}, {dollars(spent['cost_usd'])}{cached_in_full(spent)}"
