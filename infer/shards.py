"""One run on several processes, and on after an interruption: whose questions are whose, and which are answered already.

`accelerate launch -m infer RECIPE` starts the processes. Each writes a ledger of its own, one line an answered question, and the main
process puts them together. A run goes on from whatever ledgers are there, also on another number of processes.
"""

import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Self, TextIO, TypeVar

from refinery.contract.records import Record, parse_record
from refinery.contract.trace import Prediction
from refinery.errors import RunDirError
from refinery.prompts.render import rendered_prompts
from refinery.runtime.process import num_processes, process_rank
from refinery.runtime.run_dir import RunDir

logger = logging.getLogger(__name__)

_LEDGER = "predictions.jsonl.ledger"
# How long processes wait for the slowest; a launcher ends them all when one fails.
_PATIENCE = timedelta(days=30)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of this run, as a launcher numbers them; one where there is no launcher."""

    rank: int
    count: int

    @classmethod
    def launched(cls) -> "Processes":
        """From the launcher's environment."""
        return cls(process_rank(), num_processes())

    @property
    def is_main(self) -> bool:
        """Whether this one opens the run and puts it together."""
        return self.rank == 0

    def share(self, rows: Sequence[T]) -> Sequence[T]:
        """Every `count`-th of them, so that no process gets one stretch of a file ordered by difficulty."""
        return rows[self.rank :: self.count]

    def wait(self) -> None:
        """Return once every process is here. Raises RunDirError when one has ended instead.

        Over gloo, whatever the device: nothing but the waiting is shared.
        """
        if self.count == 1:
            return
        import torch.distributed as dist

        try:
            if not dist.is_initialized():
                dist.init_process_group("gloo", timeout=_PATIENCE)
            dist.barrier()
        except RuntimeError as error:
            logger.debug("process %d waited in vain: %s", self.rank, error)
            raise RunDirError(f"process {self.rank}: another process of this run has ended. --resume goes on from what is done.") from None

    def part(self) -> None:
        """Leave the group."""
        if self.count > 1:
            import torch.distributed as dist

            dist.destroy_process_group()


class LedgerRow(Record):
    """A question's outcome, and where its process stood then: seconds into its `attempt` (1 is the first), prompts used so far."""

    attempt: int
    seconds: float
    prompts: dict[str, str]
    prediction: Prediction


class AnswerLedger:
    """The ledger that one process appends to. A line cut short by an interruption is taken away first."""

    def __init__(self, output: RunDir, process_rank: int, *, attempt: int) -> None:
        self._output, self._path, self._attempt = output, output / f"{_LEDGER}.{process_rank}", attempt
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path.exists():
            os.truncate(self._path, len(_whole_lines(self._path.read_bytes())))
        self._file, self._started = self._path.open("a", encoding="utf-8"), time.perf_counter()
        return self

    def write(self, prediction: Prediction) -> None:
        """Put an outcome on disk, where the end of this process cannot reach it. Raises RunDirError where the disk is full."""
        assert self._file is not None, "a ledger is written inside its `with`"
        seconds = round(time.perf_counter() - self._started, 4)
        row = LedgerRow(attempt=self._attempt, seconds=seconds, prompts=rendered_prompts(), prediction=prediction)
        try:
            self._output.begin()
            self._file.write(row.model_dump_json(exclude_none=True) + "\n")
            self._file.flush()
        except OSError as error:
            raise RunDirError(f"{self._path}: cannot be written ({error.strerror}). Free some space and go on with --resume.") from None

    def __exit__(self, *_: object) -> None:
        assert self._file is not None
        with suppress(OSError):  # a full disk, which `write` has told of
            self._file.close()
        if self._path.stat().st_size == 0:  # nothing came of it
            self._path.unlink()


def read_ledgers(output: RunDir) -> list[LedgerRow]:
    """What all processes of all attempts have answered, less lines cut short. Raises RecordError for any other that is not a row."""
    rows: list[LedgerRow] = []
    for path in sorted(output.path.glob(f"{_LEDGER}.*")):
        lines = _whole_lines(path.read_bytes()).split(b"\n")[:-1]
        rows += [parse_record(line, LedgerRow, where=f"{path}:{number}") for number, line in enumerate(lines, 1)]
    return rows


def delete_ledgers(output: RunDir) -> None:
    """Once the run is whole."""
    for path in output.path.glob(f"{_LEDGER}.*"):
        path.unlink()


def attempts(rows: Sequence[LedgerRow]) -> int:
    """How often the run was begun or gone on with."""
    return max((row.attempt for row in rows), default=0)


def wall_seconds(rows: Sequence[LedgerRow]) -> float:
    """Of the whole run: each attempt up to its last answer. What an interrupted one did after that is not known."""
    longest: dict[int, float] = {}
    for row in rows:
        longest[row.attempt] = max(row.seconds, longest.get(row.attempt, 0.0))
    return sum(longest.values())


def last_outcomes(rows: Sequence[LedgerRow]) -> dict[str, Prediction]:
    """By question what became of it when it was last asked."""
    return {row.prediction.question_id: row.prediction for row in sorted(rows, key=lambda row: row.attempt)}


def prompts_used(rows: Sequence[LedgerRow]) -> dict[str, str]:
    """Hashes of the prompts that all processes used, by name."""
    return {name: prompt for row in rows for name, prompt in row.prompts.items()}


def _whole_lines(written: bytes) -> bytes:
    return written[: written.rfind(b"\n") + 1]
