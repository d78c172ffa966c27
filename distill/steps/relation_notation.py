"""The option of label tasks for MuSiQue's relation notation: annotated sub-questions as they are, or as questions."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from distill.teacher.teacher import RejectedRow
from refinery.contract.records import SubQuestion
from refinery.contract.relation_notation import as_question, is_notation

Relations = Annotated[
    Literal["kept", "questions", "rejected"],
    Field(
        description="annotated sub-questions in MuSiQue's notation, `X >> capital`: kept as they are; questions, made by a rule, and a row"
        " with a relation that has no rule is rejected; or every row with one is rejected"
    ),
]


def worded(steps: Sequence[SubQuestion], relations: str) -> list[SubQuestion]:
    """The annotated sub-questions as the option `relations` wants them. Raises RejectedRow if one of them cannot be worded so."""
    return [_worded(step, relations) if relations != "kept" and is_notation(step.text) else step for step in steps]


def _worded(step: SubQuestion, relations: str) -> SubQuestion:
    question = as_question(step.text) if relations == "questions" else None
    if question is None:
        raise RejectedRow(
            "relation_notation", f"'{step.text}' is not a question" + (", and no rule makes one of it" * (relations == "questions"))
        )
    return step.model_copy(update={"text": question})
