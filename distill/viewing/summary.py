"""The six lines with which a labeling run ends: in, rejected, balance, cost, files, and what to do next."""

from pathlib import Path
from typing import Any

from refinery.reporting.summary import counted, dollars, summary

_ENDPOINTS = ("teacher", "target_endpoint")


def run_summary(metrics: dict[str, Any], folder: Path) -> str:
    """The lines about the run in `folder`."""
    questions, labeled, rejected = (metrics[name] for name in ("questions", "questions_labelled", "questions_rejected"))
    return summary(
        [
            ("in", f"{questions:,} questions, {labeled:,} of them labeled"),
            ("rejected", f"{rejected:,}: {counted(metrics['rejected_by_reason'])}" if rejected else "none"),
            ("rows", _balance(metrics["rows"], metrics["labels"])),
            ("cost", _cost(metrics)),
            ("files", f"{counted({f'{split}.jsonl': rows for split, rows in metrics['rows_by_split'].items()}) or 'no rows'} in {folder}"),
            ("next", f"refinery view {folder} --output {folder}.html"),
        ]
    )


def _balance(rows: int, labels: dict[str, int]) -> str:
    total = sum(labels.values())
    shares = ", ".join(f"{label} {count / total:.0%}" for label, count in sorted(labels.items()))
    return f"{rows:,}" + (f": {shares}" if shares else "")


def _cost(metrics: dict[str, Any]) -> str:
    spent = [metrics[name] for name in _ENDPOINTS if name in metrics]
    seconds = f"{metrics['seconds_labelling']:,.0f} s" if "seconds_labelling" in metrics else ""
    return ", ".join(filter(None, [*map(_of_endpoint, spent), seconds]))


def _of_endpoint(spent: dict[str, Any]) -> str:
    stored = f" ({spent['replies_from_store']:,} more from the store)" if spent["replies_from_store"] else ""
    tokens = spent["num_prompt_tokens"] + spent["num_completion_tokens"]
    return f"{spent['calls']:,} calls{stored}, {tokens:,} tokens, {dollars(spent['cost_usd'])}"
