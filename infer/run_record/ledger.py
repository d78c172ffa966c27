"""Running on several processes and resuming after an interruption: the questions of each process, and those already answered.

`accelerate launch -m infer RECIPE` starts the processes. Each writes a separate ledger with one line per answered question, and the main
process merges them. A resumed run continues from all existing ledgers, even with a different number of processes.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Self, TextIO, TypeVar

from pydantic import field_serializer

from refinery.contract.records import Question, Record, parse_record
from refinery.contract.trace import Prediction, StoredPrediction, packed
from refinery.errors import RunDirError
from refinery.prompts.render import rendered_prompts
from refinery.runtime.files.jsonl import LineIndex, drop_torn_line, numbered_lines
from refinery.runtime.run.process_rank import num_processes, process_rank
from refinery.runtime.run.run_dir import RunDir

logger = logging.getLogger(__name__)

_LEDGER = "predictions.jsonl.ledger"
# How long processes wait for the slowest one; if one fails, the launcher stops them all.
_PATIENCE = timedelta(days=30)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Processes:
    """This process and the number of processes in the run, as the launcher set them; without a launcher there is one."""

    rank: int
    count: int

    @classmethod
    def launched(cls) -> "Processes":
        """Read rank and count from the launcher's environment."""
        return cls(process_rank(), num_processes())

    @property
    def is_main(self) -> bool:
        """Whether this process opens the run and merges the results."""
        return self.rank == 0

    def share(self, rows: Iterable[T]) -> Iterator[T]:
        """Every `count`-th row, so that a file sorted by difficulty is spread evenly over the processes."""
        return islice(rows, self.rank, None, self.count)

    def wait(self) -> None:
        """Wait until every process gets here. Raises RunDirError if one of them has ended.

        It uses gloo on every device, because the processes exchange no data.
        """
        if self.count == 1:
            return
        import torch.distributed as dist

        try:
            if not dist.is_initialized():
                dist.init_process_group("gloo", timeout=_PATIENCE)
            dist.barrier()
        except RuntimeError as error:
            logger.debug("process %d: a barrier failed: %s", self.rank, error)
            raise RunDirError(f"process {self.rank}: another process of this run has ended. Resume the run with --resume.") from None

    def part(self) -> None:
        """Leave the process group."""
        if self.count > 1:
            import torch.distributed as dist

            dist.destroy_process_group()


class LedgerRow(Record):
    """A question's outcome, with the seconds since the start of its `attempt` (1 is the first) and the prompts its process used so far."""

    attempt: int
    seconds: float
    prompts: dict[str, str]
    prediction: Prediction

    @field_serializer("prediction")
    def _stored(self, prediction: Prediction) -> StoredPrediction:
        return packed(prediction)


class _Outcome(Record, extra="ignore"):
    """The outcome of a question in a row's prediction."""

    question_id: str
    failed: str | None = None


class _RowHead(Record, extra="ignore"):
    """A row without the content of the answer."""

    attempt: int
    seconds: float
    prompts: dict[str, str]
    prediction: _Outcome


class AnswerLedger:
    """The ledger that one process appends to. Opening it removes a last line that an interruption left incomplete."""

    def __init__(self, output: RunDir, process_rank: int, *, attempt: int) -> None:
        self._output, self._path, self._attempt = output, output / f"{_LEDGER}.{process_rank}", attempt
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path.exists():
            drop_torn_line(self._path)
        self._file, self._started = self._path.open("a", encoding="utf-8"), time.perf_counter()
        return self

    def write(self, prediction: Prediction) -> None:
        """Write an outcome and flush it, so that it survives the end of this process. Raises RunDirError if the disk is full."""
        assert self._file is not None, "write to a ledger only inside its `with` block"
        seconds = round(time.perf_counter() - self._started, 4)
        row = LedgerRow(attempt=self._attempt, seconds=seconds, prompts=rendered_prompts(), prediction=prediction)
        try:
            if _is_answered(prediction):  # a run without any answer does not refuse a corrected start
                self._output.begin()
            self._file.write(row.model_dump_json(exclude_none=True) + "\n")
            self._file.flush()
        except OSError as error:
            raise RunDirError(f"{self._path}: cannot be written ({error.strerror}). Free some space and pass --resume.") from None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._file is not None
        with suppress(OSError):  # a full disk, which `write` has already reported
            self._file.close()
        if self._path.stat().st_size == 0 or (kind is not None and not self._output.begun):  # nothing to resume from
            self._path.unlink()


def _is_answered(prediction: Prediction) -> bool:
    """Whether the question did not fail, and no endpoint refused a request about it."""
    return prediction.failed is None and not prediction.has_refusal


class LedgerAnswers:
    """The ledgers of all processes and attempts, without incomplete last lines. Only an index of the lines is kept, on disk.

    Raises RecordError for any other invalid line. `attempts` counts how often the run was started or resumed, and `prompts` has the hashes
    of the prompts that any process used, by name.
    """

    def __init__(self, ledgers: Sequence[Path]) -> None:
        self._paths = ledgers
        self._lines, self._answered = LineIndex(), LineIndex()
        self._longest: dict[int, float] = {}
        self._open: dict[int, BinaryIO] = {}
        self.prompts: dict[str, str] = {}
        for file, path in enumerate(self._paths):
            for number, (start, line) in enumerate(numbered_lines(path), 1):
                if line.endswith(b"\n"):
                    self._add(parse_record(line, _RowHead, where=f"{path}:{number}"), start, file)

    def _add(self, row: _RowHead, start: int, file: int) -> None:
        self._lines.add(row.prediction.question_id, start, file=file)
        if row.prediction.failed is None:
            self._answered.add(row.prediction.question_id, start, file=file)
        self._longest[row.attempt] = max(row.seconds, self._longest.get(row.attempt, 0.0))
        self.prompts |= row.prompts

    @property
    def attempts(self) -> int:
        """How many times the run was started or resumed."""
        return max(self._longest, default=0)

    @property
    def wall_seconds(self) -> float:
        """The wall time of the whole run in seconds: each attempt counts up to its last answer."""
        return sum(self._longest.values())

    @property
    def num_answered(self) -> int:
        """How many questions have an answer."""
        return self._answered.num_ids()

    def has_answer(self, question: Question) -> bool:
        """Whether an attempt has answered the question without a failure."""
        return question.id in self._answered

    def last_outcome(self, question: Question) -> Prediction:
        """The outcome of the question's last attempt. Raises RunDirError if there is none."""
        rows = [row for place in self._lines.find(question.id) if (row := self._read(*place)).prediction.question_id == question.id]
        if not rows:
            raise RunDirError(f"question '{question.id}' has no outcome, because the questions have changed. Resume the run with --resume.")
        return sorted(rows, key=lambda row: row.attempt)[-1].prediction

    def _read(self, file: int, start: int) -> LedgerRow:
        if file not in self._open:
            self._open[file] = self._paths[file].open("rb")
        self._open[file].seek(start)
        return parse_record(self._open[file].readline(), LedgerRow, where=str(self._paths[file]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()


def ledgers_of(output: RunDir) -> list[Path]:
    """The ledgers of all processes."""
    return sorted(output.path.glob(f"{_LEDGER}.*"))


def delete_ledgers(output: RunDir) -> None:
    """Delete the ledgers; call it once every question has an answer."""
    for path in ledgers_of(output):
        path.unlink()
