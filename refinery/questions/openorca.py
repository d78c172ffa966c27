"""OpenOrca (`1M-GPT4-Augmented.parquet`): instructions from FLAN, each after a system prompt, with the reply of GPT-4 or GPT-3.5.

A question's type is the part of FLAN that it comes from: `niv`, `t0`, `cot` or `flan`.
"""

from refinery.contract.records import Question
from refinery.questions.base import DatasetRow, reader_of


class _Row(DatasetRow):
    id: str
    system_prompt: str = ""
    question: str
    response: str


def _to_question(row: _Row) -> Question:
    return Question(
        id=row.id,
        text=row.question.strip(),
        answers=[row.response.strip()],
        system_prompt=row.system_prompt.strip() or None,
        type=row.id.partition(".")[0],
        dataset="openorca",
    )


READER = reader_of(_Row, _to_question, hub_columns=["system_prompt", "response"], repositories=("Open-Orca/OpenOrca",))
