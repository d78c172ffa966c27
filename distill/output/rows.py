"""What a run writes while it runs: rows by split in the order of their questions, the rejected ones with why, and the counts.

Files grow under a `.partial` name and get their own when the run ends, whole or stopped; so a file with its own name holds whole rows.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO, get_args

from distill.guards import Guards
from distill.output.parquet import write_parquet
from distill.steps.rank_agreement import RankAgreement
from distill.teacher.teacher import RejectedRow
from refinery.contract.records import JudgeLabel, Record, RelevanceLabel, Trajectory
from refinery.contract.rq_rag_release import release_row
from refinery.prompts.render import rendered_prompts
from refinery.runtime.run_dir import RunDir

Outcome = Sequence[Record] | RejectedRow
# Of a file of labels, written at once: one system call for a thousand rows.
_WRITTEN_AT_ONCE = 1 << 20
_FAILURES = "failures.jsonl"
_FIRST_REJECTED, _REASON_LENGTH = 3, 160  # as they are quoted
# Reasons of rejection that may have passed by the next attempt, as they are named or in the server's status.
_PASSING = re.compile(r"(no_reply|search_failed): |refused: status (402|408|409|429|5\d\d)\b")


def rejections(path: Path) -> dict[str, str]:
    """Why rows of a run got no label, by their ids."""
    return {row["question_id"]: row["detail"] for row in _failures(path)}


def lasting_failures(path: Path) -> dict[str, RejectedRow]:
    """A finished run's rejected rows by id, without those whose reason may have passed: no reply, a failed search, an unpaid bill."""
    lasting = [row for row in _failures(path) if not _PASSING.match(row["detail"])]
    return {row["question_id"]: RejectedRow(row["reason"], row["detail"].removeprefix(f"{row['reason']}: ")) for row in lasting}


def _failures(path: Path) -> list[dict[str, str]]:
    with (path / _FAILURES).open("rb") as file:
        return [json.loads(line) for line in file]


class LabelWriter:
    """Writes each question's outcome and counts it; `take` is given each row too.

    The files of a finished run are replaced (`replaces_finished`) by whole ones only.
    """

    def __init__(
        self, output: RunDir, guards: Guards, *, replaces_finished: bool = False, take: Callable[[Record], None] | None = None
    ) -> None:
        self.output, self.guards, self._replaces_finished, self._take = output, guards, replaces_finished, take
        self.questions = self.labelled = self.rows = 0
        self.rejected: Counter[str] = Counter()
        self.first_rejected: list[str] = []
        self.labels: Counter[str] = Counter()
        self._labels_of_file: dict[str, Counter[str]] = {}
        self.rows_of_split: Counter[str] = Counter()
        self.agreement = RankAgreement()
        self._files: dict[str, TextIO] = {}
        self._record_types: dict[str, type[Record]] = {}

    @property
    def num_rejected(self) -> int:
        """Questions that got no label."""
        return sum(self.rejected.values())

    def write(self, question: Any, outcome: Outcome) -> None:
        """One question's rows, or why it has none."""
        if not self.questions:
            self.output.begin()
        self.questions += 1
        if isinstance(outcome, RejectedRow):
            self.rejected[outcome.reason] += 1
            if len(self.first_rejected) < _FIRST_REJECTED:
                self.first_rejected.append(_one_line(f"{question.id}: {outcome}"))
            failure = {"question_id": question.id, "reason": outcome.reason, "detail": str(outcome)}
            self._file(_FAILURES).write(json.dumps(failure, ensure_ascii=False) + "\n")
            self.guards.add(question, [])
            return
        self.labelled += bool(outcome)
        self.guards.add(question, outcome)
        if relevance := [row for row in outcome if isinstance(row, RelevanceLabel)]:
            self.agreement.add(question.dataset, relevance)
        for row in outcome:
            self._write_row(question, row)

    def _write_row(self, question: Any, row: Record) -> None:
        split = question.split or "train"
        self.rows += 1
        if self._take:
            self._take(row)
        self.rows_of_split[split] += 1
        name = f"{split}.jsonl"
        if isinstance(row, JudgeLabel):
            self.labels[row.label] += 1
            self._labels_of_file.setdefault(name, Counter())[row.label] += 1
        if self._record_types.setdefault(name, type(row)) is not type(row):
            raise TypeError(f"{name} holds {self._record_types[name].__name__} rows, and the task gave a {type(row).__name__} too")
        self._file(name).write(row.model_dump_json(exclude_none=True) + "\n")
        if isinstance(row, Trajectory):  # the same in the layout that RQ-RAG released its data in
            released = json.dumps(release_row(row, question.dataset), ensure_ascii=False)
            self._file(f"{split}.messages.jsonl").write(released + "\n")

    def _file(self, name: str) -> TextIO:
        if name not in self._files:
            self._files[name] = (self.output / f"{name}.partial").open("w", _WRITTEN_AT_ONCE, encoding="utf-8")
        return self._files[name]

    def finish(self, *, whole: bool) -> None:
        """Close the files and give them their names; those of an earlier, stopped run go, and of a finished one where these are whole."""
        self._file(_FAILURES)
        for name, file in self._files.items():
            file.close()
            if whole or not self._replaces_finished:
                (self.output / f"{name}.partial").replace(self.output / name)
            else:
                (self.output / f"{name}.partial").unlink()

    def warnings(self) -> Iterator[str]:
        """What is likely to make the labels useless."""
        for name, counts in self._labels_of_file.items():
            if len(counts) == 1 and counts.total() > 1:
                classes = get_args(self._record_types[name].model_fields["label"].annotation)
                balance = ", ".join(f"{counts[label]} {label}" for label in classes)
                yield (
                    f"{self.output / name}: every label is the same ({balance}), and a model trained on them gives no other. Check the "
                    "prompt and the first rows, or label questions and passages of which some call for another label, before you train."
                )

    def write_columns(self) -> None:
        """Every file of labels once more as Parquet, with the schema of its record."""
        for name, record in self._record_types.items():
            write_parquet(self.output / name, record)

    def counts(self) -> dict[str, Any]:
        """Rows in = rows labelled + rows rejected, by split, label and reason."""
        return {
            "questions": self.questions,
            "questions_labelled": self.labelled,
            "questions_rejected": self.num_rejected,
            "questions_without_rows": self.questions - self.labelled - self.num_rejected,
            "rejected_by_reason": dict(self.rejected),
            "rows": self.rows,
            "rows_by_split": dict(self.rows_of_split),
            "labels": dict(self.labels),
            "prompts": rendered_prompts(),
            **({"relevance_by_rank": by_rank} if (by_rank := self.agreement.report()) else {}),
        }


def _one_line(text: str) -> str:
    """Of what a server or a teacher wrote, as much as a terminal may show."""
    line = " ".join(text.split())
    return "".join(char if char.isprintable() else "?" for char in line[:_REASON_LENGTH])


class InOrder:
    """Hands outcomes on in the order of their questions, in whatever order they come; holds at most `window` back."""

    def __init__(self, hand_on: Callable[[Any, Outcome], None], window: int) -> None:
        self._hand_on = hand_on
        self._window: float = window
        self._next = 0
        self._held: dict[int, tuple[Any, Outcome]] = {}
        self._moved = asyncio.Event()

    async def room(self, number: int) -> None:
        """Wait while question `number` is too far ahead of the slowest one."""
        while number - self._next >= self._window:
            self._moved.clear()
            await self._moved.wait()

    def let_pass(self) -> None:
        """Hold nobody back any more: a question will not come."""
        self._window = float("inf")
        self._moved.set()

    def put(self, number: int, question: Any, outcome: Outcome) -> None:
        """The outcome of question `number`."""
        self._held[number] = question, outcome
        while self._next in self._held:
            self._hand_on(*self._held.pop(self._next))
            self._next += 1
            self._moved.set()

    def flush(self) -> None:
        """Hand on what waits for a question that will not come."""
        for number in sorted(self._held):
            self._hand_on(*self._held.pop(number))
