"""RQ-RAG's released training data (`{"id", "dataset", "messages"}`) as questions, each with the dialogue before it and the closing answer.

`refinery/contract/rq_rag_release.py` reads the same rows as trajectories, with searches, evidence and system prompts. The choices of a
multiple-choice question stay in its text, as in the release.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from refinery.contract.records import Question, Turn, iter_records
from refinery.contract.rq_rag_release import ReleaseRow, parse_release_row
from refinery.errors import RecordError
from refinery.questions.base import Reader, parse_row, split_of
from refinery.runtime.run.bad_rows import bad_row, end_of_rows


def read(path: Path) -> Iterator[Question]:
    """Read a release file. Raises RecordError for a row whose messages are not a dialogue that ends in a trajectory."""
    rows = ((f"{path}: row {number}", row) for number, row in enumerate(iter_records(path, ReleaseRow), 1))
    return _questions(path, rows)


def of_rows(path: Path, rows: Iterable[tuple[str, Any]]) -> Iterator[Question]:
    """The questions of (where, values) pairs in the release's columns."""
    return _questions(path, rows)


def _questions(path: Path, rows: Iterable[tuple[str, Any]]) -> Iterator[Question]:
    split, number = split_of(path), 0
    for number, (where, values) in enumerate(rows, 1):
        try:
            yield _question(parse_row(values, ReleaseRow, where=where), split, where)
        except RecordError as error:
            bad_row(error, path, number)
    end_of_rows(path, number)


def _question(row: ReleaseRow, split: str, where: str) -> Question:
    trajectory = parse_release_row(row, where=where)
    return Question(
        id=row.id,
        text=trajectory.question.strip(),
        answers=[trajectory.answer] if trajectory.answer else [],
        history=[text for turn in trajectory.history or [] for text in (turn.question, _reply(turn))] or None,
        dataset=row.dataset,
        split=split,
    )


def _reply(turn: Turn) -> str:
    return turn.reply if isinstance(turn.reply, str) else turn.reply[-1].text


READER = Reader(read, of_rows, ("messages",), ("zorowin123/rq_rag",))
