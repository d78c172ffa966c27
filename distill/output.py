"""What a run writes while it runs: rows by split in the order of their questions, the rejected ones with why, and the counts.

Files grow under a `.partial` name and get their own when the run ends, whole or stopped; so a file with its own name holds whole rows.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from distill.guards import Guards
from distill.parquet import write_parquet
from distill.rank_agreement import RankAgreement
from distill.teacher import RejectedRow
from refinery.messages import release_row
from refinery.prompts.render import rendered_prompts
from refinery.records import Record, RelevanceLabel, Trajectory
from refinery.run_dir import RunDir
from refinery.sub_models import Judgement

Outcome = Sequence[Record] | RejectedRow
# Of a file of labels, written at once: one system call for a thousand rows.
_WRITTEN_AT_ONCE = 1 << 20


class LabelWriter:
    """Writes each question's outcome and counts it."""

    def __init__(self, output: RunDir, guards: Guards) -> None:
        self.output, self.guards = output, guards
        self.questions = self.labelled = self.rows = 0
        self.rejected: Counter[str] = Counter()
        self.labels: Counter[str] = Counter()
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
        self.output.begin()
        self.questions += 1
        if isinstance(outcome, RejectedRow):
            self.rejected[outcome.reason] += 1
            failure = {"question_id": question.id, "reason": outcome.reason, "detail": str(outcome)}
            self._file("failures.jsonl").write(json.dumps(failure, ensure_ascii=False) + "\n")
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
        self.rows_of_split[split] += 1
        if isinstance(row, Judgement):
            self.labels[row.label] += 1
        name = f"{split}.jsonl"
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

    def finish(self) -> None:
        """Close the files and give them their names; those of an earlier, stopped run go."""
        self._file("failures.jsonl")
        for name, file in self._files.items():
            file.close()
            (self.output / f"{name}.partial").replace(self.output / name)

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
