"""Count what became of annotated questions, by dataset and kind: kept or rejected, and with how many searches.

    python recipes/real/mixture.py runs/proof/labels/refinement --questions runs/proof/rows/hotpotqa/train.json ...

A file's folder names its reader, as in the study's recipes. The counts are printed as a table in Markdown.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from refinery.contract.records import Question, Trajectory, read_records
from refinery.questions.base import file_rows, read_questions
from refinery.runtime.run.command import guarded

_MOST = 5  # searches; a trajectory has no more
_HEADER = ("dataset", "kind", "questions", "kept", *(f"{count} searches" for count in range(1, _MOST + 1)), "rejected")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python recipes/real/mixture.py", description="Count trajectories by kind.")
    parser.add_argument("labels", type=Path, help="folder of a run of the refinement task")
    parser.add_argument("--questions", type=Path, nargs="+", required=True, help="its questions of one split")
    arguments = parser.parse_args(argv)
    return guarded(lambda: print(mixture(arguments.labels, arguments.questions)), traceback=False)


def mixture(labels: Path, paths: Sequence[Path]) -> str:
    """The table."""
    searches = {row.question_id: len(row.steps) - 1 for file in sorted(labels.glob("*.jsonl")) for row in _trajectories(file)}
    rejected = {row["question_id"]: row["reason"] for _, row in file_rows(labels / "failures.jsonl")}
    groups: dict[tuple[str, str], list[Question]] = defaultdict(list)
    for question in read_questions(paths, reader="by_folder"):
        groups[str(question.dataset), question.type or "-"].append(question)
        groups["all", "-"].append(question)
    lines = [_HEADER, ("---",) * len(_HEADER), *(_line(key, groups[key], searches, rejected) for key in sorted(groups))]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _trajectories(file: Path) -> Iterable[Trajectory]:
    return read_records(file, Trajectory) if file.stem in ("train", "validation", "test") else ()


def _line(key: tuple[str, str], questions: Sequence[Question], searches: dict[str, int], rejected: dict[str, str]) -> Iterator[object]:
    counts = Counter(searches.get(question.id, 0) for question in questions)
    reasons = Counter(rejected[question.id] for question in questions if question.id in rejected)
    yield from (*key, len(questions), len(questions) - counts[0], *(counts[count] for count in range(1, _MOST + 1)))
    yield ", ".join(f"{reason} {count}" for reason, count in reasons.most_common()) or 0


if __name__ == "__main__":
    sys.exit(main())
