"""The held-out rows that a finished checkpoint answered: `held_out.jsonl`, which the page of a train run shows."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from refinery.contract.records import Record, read_records, write_records

HELD_OUT_FILE = "held_out.jsonl"
_MOST_ROWS = 1_000  # the first ones, as a sample for fractions and confusions


class HeldOutAnswer(Record):
    """The model's answer for one row. `read` is its prompt, and `probability` that of the chosen label."""

    question_id: str
    question: str
    gold: str
    predicted: str
    right: bool
    probability: float | None = None
    read: str = ""


def write_held_out(output_dir: Path, answers: Sequence[HeldOutAnswer]) -> None:
    """Write the first answers."""
    write_records(output_dir / HELD_OUT_FILE, islice(answers, _MOST_ROWS))


def read_held_out(output_dir: Path) -> list[HeldOutAnswer]:
    """The answers that a run has kept; empty without `validation`, and for an older version's run."""
    path = output_dir / HELD_OUT_FILE
    return read_records(path, HeldOutAnswer) if path.exists() else []
