"""Reject a generated question that an earlier one of the run asks already, in the same words or nearly so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from distill.steps.held_out import TRAIN
from distill.teacher.teacher import RejectedRow
from refinery.contract.records import Question
from refinery.repeated_questions import AskedQuestions


class _HasSplit(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def split(self) -> str: ...


@dataclass(frozen=True, slots=True)
class _Kept:
    id: str
    split: str


class Repeats:
    """The questions kept so far. Give it held-out questions first: then no training question is kept that one of them repeats."""

    reasons = frozenset({"duplicate", "near_duplicate", "repeats_held_out"})

    def __init__(self) -> None:
        self._asked: AskedQuestions[_Kept] = AskedQuestions()

    def __call__(self, row: _HasSplit, questions: Sequence[Question]) -> None:
        """Remember a row's questions. Raises RejectedRow if an earlier row asks one of them."""
        for question in questions:
            if earlier := self._asked.same(question.text):
                raise _repeated(question, row.split, earlier, "duplicate")
            if earlier := self._asked.nearly_the_same(question.text):
                raise _repeated(question, row.split, earlier, "near_duplicate")
            self._asked.add(question.text, _Kept(row.id, row.split))


def _repeated(question: Question, split: str, earlier: _Kept, reason: str) -> RejectedRow:
    held_out = earlier.split != TRAIN and split == TRAIN
    return RejectedRow("repeats_held_out" if held_out else reason, f"{question.text!r} is asked by {earlier.id} ({earlier.split})")
