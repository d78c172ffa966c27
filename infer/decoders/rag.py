"""Retrieve once with the question and answer from all passages: the vanilla RAG baseline of both papers."""

from collections.abc import Sequence

from infer.decoders.base import Decoder
from infer.session import Session
from infer.steps.calls import Calls, Limits
from infer.steps.reasoning import answered
from refinery.contract.records import Passage, Question
from refinery.contract.trace import Prediction
from refinery.prompts.render import render_prompt
from refinery.runtime.recipe import Recipe


class Options(Recipe):
    """No options; the recipe's `passages_per_query` sets the number of passages."""


async def decode(question: Question, session: Session, options: Options) -> Prediction:
    """Make one search and one call."""
    passages = await session.search(question.text)
    return session.prediction(await answer_from(passages, question.text, session))


async def answer_from(passages: Sequence[Passage], question: str, session: Session) -> str:
    """The answer from all passages, in one call."""
    prompt = render_prompt("answer_with_passages", question=question, passages=passages)
    return await answered("answer_with_passages", prompt, question, session)


def plan(options: Options, limits: Limits) -> list[Calls]:
    """One call, which reads all passages."""
    return [Calls("answer_with_passages", (1, 1), writes=limits.answer, passages=limits.passages)]


DECODER = Decoder(decode, Options, needs_retriever=True, plan=plan)
