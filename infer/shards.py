"""Run on several processes, and resume after an interruption: which process gets which questions, and which are already answered.

`accelerate launch -m infer RECIPE` starts the processes. Each writes a separate ledger with one line per answered question, and the main
process merges them. A resumed run continues from all existing ledgers, even with a different number of processes.
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

    def share(self, rows: Sequence[T]) -> Sequence[T]:
        """Every `count`-th row, so that a file sorted by difficulty is spread evenly over the processes."""
        return rows[self.rank :: self.count]

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


class AnswerLedger:
    """The ledger that one process appends to. Opening it removes a last line that an interruption left incomplete."""

    def __init__(self, output: RunDir, process_rank: int, *, attempt: int) -> None:
        self._output, self._path, self._attempt = output, output / f"{_LEDGER}.{process_rank}", attempt
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path.exists():
            os.truncate(self._path, len(_whole_lines(self._path.read_bytes())))
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
    return prediction.failed is None and not any(
        step.name == "fault" and (step.text or "").startswith("refused") for step in prediction.trace
    )


def read_ledgers(output: RunDir) -> list[LedgerRow]:
    """The rows of all processes and attempts, without incomplete last lines. Raises RecordError for any other invalid line."""
    rows: list[LedgerRow] = []
    for path in sorted(output.path.glob(f"{_LEDGER}.*")):
        lines = _whole_lines(path.read_bytes()).split(b"\n")[:-1]
        rows += [parse_record(line, LedgerRow, where=f"{path}:{number}") for number, line in enumerate(lines, 1)]
    return rows


def delete_ledgers(output: RunDir) -> None:
    """Delete the ledgers; call it once every question has an answer."""
    for path in output.path.glob(f"{_LEDGER}.*"):
        path.unlink()


def attempts(rows: Sequence[LedgerRow]) -> int:
    """How many times the run was started or resumed."""
    return max((row.attempt for row in rows), default=0)


def wall_seconds(rows: Sequence[LedgerRow]) -> float:
    """The wall time of the whole run in seconds: each attempt counts up to its last answer."""
    longest: dict[int, float] = {}
    for row in rows:
        longest[row.attempt] = max(row.seconds, longest.get(row.attempt, 0.0))
    return sum(longest.values())


def last_outcomes(rows: Sequence[LedgerRow]) -> dict[str, Prediction]:
    """The outcome of each question's last attempt, by question id."""
    return {row.prediction.question_id: row.prediction for row in sorted(rows, key=lambda row: row.attempt)}


def prompts_used(rows: Sequence[LedgerRow]) -> dict[str, str]:
    """The hashes of the prompts that any process used, by name."""
    return {name: prompt for row in rows for name, prompt in row.prompts.items()}


def _whole_lines(written: bytes) -> bytes:
    return written[: written.rfind(b"\n") + 1]
