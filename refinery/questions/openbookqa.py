"""OpenBookQA as released (`train.jsonl`, or `train_complete.jsonl` with facts) and as on the hub: ARC's schema.

The fact that a question was written from becomes its only passage. It is not marked as supporting, because the answer also needs common
knowledge.
"""

from refinery.contract.records import Passage, Question
from refinery.questions import arc
from refinery.questions.base import reader_of


class _Row(arc.ChoiceRow):
    fact1: str | None = None


def _to_question(row: _Row) -> Question:
    facts = [Passage(id=f"{row.id}:fact1", text=row.fact1)] if row.fact1 else None
    return arc.to_question(row, "openbookqa").model_copy(update={"passages": facts})


READER = reader_of(_Row, _to_question, repositories=("allenai/openbookqa",))
