"""Summarize a teacher's replies, one line per run: rows labeled, rows rejected by reason, and how the replies were read.

python -m distill.benchmark.replies runs/real/teacher/*/
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from refinery.reporting.markdown import table
from refinery.runtime.run_dir import RunDir, read_metrics
from refinery.runtime.stage import guarded

_HEAD = ("task", "rows", "labeled", "rejected", "reasons", "calls", "replies read")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of the given runs; returns the exit code."""
    runs = [Path(run) for run in (sys.argv[1:] if argv is None else argv) if RunDir(Path(run)).finished]
    return guarded(lambda: print("\n".join(table(_HEAD, [_line(run) for run in runs]))), traceback=False)


def _line(run: Path) -> list[Any]:
    metrics = read_metrics(run)
    teacher = metrics["teacher"]
    labeled, rejected = metrics["questions_labelled"] + metrics["questions_without_rows"], metrics["questions_rejected"]
    return [
        run.name,
        metrics["questions"],
        labeled,
        rejected,
        _counts(metrics["rejected_by_reason"]),
        teacher["calls"] + teacher["replies_from_store"],
        _counts(teacher["replies_read_as"]),
    ]


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


if __name__ == "__main__":
    sys.exit(main())
