"""Relevance labels (RA-ISF App. A.2, D): retrieve passages, and let the teacher say which are relevant and sufficient to answer."""

from pydantic import BaseModel

from distill.bench import Bench
from distill.teacher import Asked, RejectedRow
from refinery.prompts.render import render_prompt
from refinery.records import Question, RelevanceLabel

NEEDS = ("teacher", "retriever")


class Reply(BaseModel):
    """Numbers of the relevant passages, from 1."""

    relevant: list[int]


async def label(question: Question, bench: Bench) -> list[RelevanceLabel]:
    """One label per retrieved passage; one call judges them all, as in App. D."""
    assert bench.teacher is not None
    passages = await bench.search(question.text, question)
    asked = Asked()
    reply = await bench.teacher.ask(render_prompt("teacher_relevance", question=question.text, passages=passages), Reply, asked)
    if any(not 1 <= number <= len(passages) for number in reply.relevant):
        raise RejectedRow("malformed", f"the teacher named passages {reply.relevant} of {len(passages)}")
    provenance = bench.provenance(prompt="teacher_relevance", asked=asked)
    return [
        RelevanceLabel(
            question_id=question.id,
            question=question.text,
            passage=passage,
            label="relevant" if number in reply.relevant else "irrelevant",
            provenance=provenance,
        )
        for number, passage in enumerate(passages, 1)
    ]
