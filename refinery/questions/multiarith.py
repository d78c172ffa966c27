"""MultiArith as released (`MultiArith.json`): word problems with one number as the answer.

The hub's copy has the number as text (`final_ans`), and no ids.
"""

from typing import Annotated

from pydantic import AliasChoices, BeforeValidator, Field

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, reader_of


class _Row(DatasetRow, coerce_numbers_to_str=True):
    id: str = Field(default="", validation_alias="iIndex")
    question: str = Field(validation_alias=AliasChoices("sQuestion", "question"))
    solutions: Annotated[list[float], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)] = Field(
        validation_alias=AliasChoices("lSolutions", "final_ans")
    )


def _to_question(row: _Row) -> Question:
    """Whole numbers lose their `.0`."""
    answers = [str(int(number)) if number.is_integer() else str(number) for number in row.solutions]
    return Question(id=row.id, text=row.question.strip(), answers=answers, dataset="multiarith")


READER = reader_of(_Row, _to_question, split="test", repositories=("ChilleD/MultiArith",))
