"""Summarize the replies of teachers, one line per run: rows labeled, rows rejected by reason, calls by role, and how the replies were read.

python -m benchmarks.distill.replies runs/real/teacher/*/
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from refinery.reporting.markdown import table
from refinery.runtime.run.command import guarded
from refinery.runtime.run.run_dir import RunDir, read_metrics

_HEAD = ("task", "rows", "labeled", "rejected", "reasons", "calls", "replies read")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of the given runs; returns the exit code."""
    runs = [Path(run) for run in (sys.argv[1:] if argv is None else argv) if RunDir(Path(run)).finished]
    return guarded(lambda: print("\n".join(table(_HEAD, [_line(run) for run in runs]))), traceback=False)


def _line(run: Path) -> list[Any]:
    metrics = read_metrics(run)
    asked = {name: found for name, found in metrics.items() if isinstance(found, dict) and "replies_read_as" in found}
    calls = {role: found["calls"] + found["replies_from_store"] for role, found in asked.items()}
    labeled, rejected = metrics["questions_labelled"] + metrics["questions_without_rows"], metrics["questions_rejected"]
    return [
        run.name,
        metrics["questions"],
        labeled,
        rejected,
        _counts(metrics["rejected_by_reason"]),
        _counts(calls) if len(calls) > 1 else sum(calls.values()),
        _counts(sum((Counter(found["replies_read_as"]) for found in asked.values()), Counter())),
    ]


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


if __name__ == "__main__":
    sys.exit(main())
