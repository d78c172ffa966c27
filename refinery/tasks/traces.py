"""The calls of a prompt-only method (MIGRES, re-thinking or a baseline), which a student learns from a teacher."""

from collections.abc import Sequence

from refinery.contract.records import PromptCompletion
from refinery.tasks.base import Card, Writer


def _score(written: Sequence[str], records: Sequence[PromptCompletion]) -> dict[str, float]:
    """The fraction of replies that equal the teacher's, ignoring white space at both ends."""
    right = [text.strip() == record.reply.strip() for text, record in zip(written, records, strict=True)]
    return {"accuracy": sum(right) / len(right)}


TASK = Writer(
    name="traces",
    record=PromptCompletion,
    prompt=lambda record: record.prompt,
    reply=lambda record: record.reply,
    scores=("accuracy",),
    score=_score,
    card=lambda recipe: Card(
        purpose="Answers the prompts of a prompt-only method (MIGRES, re-thinking or a baseline) as its teacher did.",
        program="""\
context = llm.context("Question: Which country is Lyon in?\\nAnswer:")  # in training, a prompt of the method that was distilled
print(asyncio.run(context.generate(max_new_tokens=64)).text)""",
        note="In its method's loop it replaces the teacher: use `llm: {base: {repository}}` with the method's `decoder`.",
    ),
)
