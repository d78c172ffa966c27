"""Decompositions (RA-ISF App. A.3): the teacher breaks a question into sub-questions."""

from typing import Annotated

from pydantic import BaseModel, Field

from distill.bench import Bench
from distill.teacher import Asked
from refinery.prompts.render import render_prompt
from refinery.records import Decomposition, Question

NEEDS = ("teacher",)


class Reply(BaseModel):
    """Sub-questions in the order in which they should be answered."""

    sub_questions: list[Annotated[str, Field(min_length=1)]] = Field(min_length=1)


async def label(question: Question, bench: Bench) -> list[Decomposition]:
    """The teacher's sub-questions."""
    assert bench.teacher is not None
    asked = Asked()
    reply = await bench.teacher.ask(render_prompt("teacher_decomposition", question=question.text), Reply, asked)
    return [
        Decomposition(
            question_id=question.id,
            question=question.text,
            sub_questions=[sub_question.strip() for sub_question in reply.sub_questions],
            provenance=bench.provenance(prompt="teacher_decomposition", asked=asked),
        )
    ]
