"""KQA Pro without its choices, for exact match with the answer's text (re-thinking Sec. 4.4)."""

from pathlib import Path

from refinery.contract.records import Question
from refinery.questions.base import read_dataset
from refinery.questions.kqapro import KqaProRow, open_question


def read(path: Path) -> list[Question]:
    """Read a release file."""
    return read_dataset(path, KqaProRow, open_question)
