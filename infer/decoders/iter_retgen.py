"""Iter-RetGen (Shao et al., 2023): each generation is added to the next query, and the last generation gives the answer."""

from pydantic import Field

from infer.decoders.base import Decoder
from infer.session import Session
from infer.steps.calls import Calls, Limits
from infer.steps.demonstrations import Examples, prompt_with, reason_with
from infer.steps.reasoning import concluded
from refinery.contract.records import Question
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


async def decode(question: Question, session: Session, options: Options) -> Prediction:
    """Make one search and one call per iteration."""
    written = ""
    for depth in range(options.iterations):
        passages = await session.search(f"{question.text} {written}".strip(), depth=depth)
        written = await reason_with(
            options.examples,
            "generate",
            "iter_retgen",
            question.text,
            session,
            passages=passages,
            depth=depth,
            max_new_tokens=options.max_reasoning_tokens,
        )
    return session.prediction(concluded(written, question.text, session, depth=options.iterations - 1))


def plan(options: Options, limits: Limits) -> list[Calls]:
    """One call per iteration. Earlier generations become queries and are not read again."""
    prompt = prompt_with(options.examples, "iter_retgen")
    return [Calls("generate", (options.iterations, options.iterations), options.max_reasoning_tokens, limits.passages, prompt=prompt)]


DECODER = Decoder(decode, Options, needs_retriever=True, plan=plan)
