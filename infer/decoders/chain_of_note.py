"""Chain-of-Note (Yu et al., 2023): in one reply, reading notes on every passage and its relevance, and then the answer.

RQ-RAG's prompt (Table 8) takes notes on the passages of two simpler questions; our own prompt does the same for one question. Neither
shows worked examples.
"""

from typing import Literal

from pydantic import Field

from infer.decoders.base import Decoder
from infer.session import Session
from infer.steps.calls import Calls, Limits
from infer.steps.least_to_most import two_parts
from infer.steps.reasoning import concluded, reason
from refinery.contract.records import Question
from refinery.contract.trace import Prediction
from refinery.prompts.render import Prompt, render_prompt
from refinery.runtime.recipe import Recipe


class Options(Recipe):
    """The prompt and the length of the notes."""

    prompt: Literal["own", "rq_rag"] = Field(
        default="own", description="rq_rag: the prompt of Table 8, over two simpler questions that the model names first"
    )
    max_note_tokens: int = Field(default=500, description="maximum tokens of notes and answer together", ge=1)


async def decode(question: Question, session: Session, options: Options) -> Prediction:
    """Make one search and one call; RQ-RAG's prompt takes one more call, which comes first, and two searches."""
    prompt = await _prompt(question.text, session, options)
    notes = await reason("chain_of_note", prompt, question.text, session, max_new_tokens=options.max_note_tokens)
    return session.prediction(concluded(notes, question.text, session))


async def _prompt(question: str, session: Session, options: Options) -> Prompt:
    if options.prompt == "rq_rag":
        parts = await two_parts(question, session, max_new_tokens=options.max_note_tokens)
        return render_prompt("chain_of_note_rq_rag", question=question, parts=parts)
    return render_prompt("chain_of_note", question=question, passages=await session.search(question))


def plan(options: Options, limits: Limits) -> list[Calls]:
    """One call. RQ-RAG's prompt, which shows the passages of two questions, takes an earlier call that names them."""
    most = options.max_note_tokens
    if options.prompt == "own":
        return [Calls("chain_of_note", (1, 1), writes=most, passages=limits.passages)]
    decompose = Calls("decompose", (1, 1), writes=most, prompt="least_to_most_decompose")
    return [decompose, Calls("chain_of_note", (1, 1), most, 2 * limits.passages, replies=most, prompt="chain_of_note_rq_rag")]


DECODER = Decoder(decode, Options, needs_retriever=True, plan=plan)
