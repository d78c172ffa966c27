"""Iter-RetGen (Shao et al., 2023): each generation is added to the next query, and the last generation gives the answer.

A reader that was trained to answer drafts an answer in each iteration instead of reasoning (`generation: answer`).
"""

from typing import Literal

from pydantic import Field

from infer.decoders.base import Decoder
from infer.decoders.rag import answer_from
from infer.session import Session
from infer.steps.calls import Calls, Limits
from infer.steps.demonstrations import Examples, prompt_with, reason_with
from infer.steps.reasoning import concluded
from refinery.contract.records import Passage, Question
from refinery.contract.trace import Prediction
from refinery.runtime.recipe import Recipe


class Options(Recipe):
    """Worked examples and the number of iterations."""

    examples: Examples = Field(default="zero", description="few: three worked examples, as in the paper; re-thinking compares without")
    iterations: int = Field(
        default=2, description="re-thinking and MIGRES compare with 2, RA-ISF Table 1 quotes 3; 1 is RAG with chain-of-thought", ge=1
    )
    max_reasoning_tokens: int = Field(
        default=300, description="maximum tokens of each generation, which goes into the next query in full", ge=1
    )
    generation: Literal["reasoning", "answer"] = Field(
        default="reasoning", description="answer: rag's prompt and a short answer, for a reader that was trained with them"
    )
    reads: Literal["last", "all"] = Field(default="last", description="the passages of the last search, as in the paper, or of all so far")


async def decode(question: Question, session: Session, options: Options) -> Prediction:
    """Make one search and one call per iteration."""
    written, read = "", dict[str, Passage]()
    for depth in range(options.iterations):
        found = {passage.id: passage for passage in await session.search(f"{question.text} {written}".strip(), depth=depth)}
        read = read | found if options.reads == "all" else found
        written = await _generation(list(read.values()), question.text, session, options, depth)
    if options.generation == "answer":
        return session.prediction(written)
    return session.prediction(concluded(written, question.text, session, depth=options.iterations - 1))


async def _generation(passages: list[Passage], question: str, session: Session, options: Options, depth: int) -> str:
    if options.generation == "answer":
        return await answer_from(passages, question, session)
    limit = options.max_reasoning_tokens
    shown = {"passages": passages, "depth": depth, "max_new_tokens": limit}
    return await reason_with(options.examples, "generate", "iter_retgen", question, session, **shown)


def plan(options: Options, limits: Limits) -> list[Calls]:
    """One call per iteration. Earlier generations become queries and are not read again."""
    count, passages = options.iterations, limits.passages * (options.iterations if options.reads == "all" else 1)
    if options.generation == "answer":
        return [Calls("answer_with_passages", (count, count), writes=limits.answer, passages=passages)]
    prompt = prompt_with(options.examples, "iter_retgen")
    return [Calls("generate", (count, count), options.max_reasoning_tokens, passages, prompt=prompt)]


DECODER = Decoder(decode, Options, needs_retriever=True, plan=plan)
