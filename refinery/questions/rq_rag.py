"""RQ-RAG's released training data (`{"id", "dataset", "messages"}`) as questions: what was asked, the dialogue before, the closing answer.

`refinery/contract/rq_rag_release.py` reads the same rows as trajectories, with searches, evidence and system prompts. The choices of a
multiple-choice question stay in its text, as in the release.
"""

from collections.abc import Iterator
from pathlib import Path

from refinery.contract.records import Question, Turn, iter_records
from refinery.contract.rq_rag_release import ReleaseRow, parse_release_row
from refinery.questions.base import split_of


def read(path: Path) -> Iterator[Question]:
    """Read a release file. Raises RecordError for a row whose messages are not a dialogue that ends in a trajectory."""
    for number, row in enumerate(iter_records(path, ReleaseRow), 1):
        trajectory = parse_release_row(row, where=f"{path}: row {number}")
        yield Question(
            id=row.id,
            text=trajectory.question.strip(),
            answers=[trajectory.answer] if trajectory.answer else [],
            history=[text for turn in trajectory.history or [] for text in (turn.question, _reply(turn))] or None,
            dataset=row.dataset,
            split=split_of(path),
        )


def _reply(turn: Turn) -> str:
    return turn.reply if isinstance(turn.reply, str) else turn.reply[-1].text
