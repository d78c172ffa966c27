"""Iter-RetGen (Shao et al., 2023): what was generated last goes into the next query; the last generation answers."""

from pydantic import Field

from infer.decoders.base import Decoder
from infer.session import Session
from infer.steps.demonstrations import Examples, reason_with
from infer.steps.reasoning import concluded
from refinery.contract.records import Question
from refinery.contract.trace import Prediction
from refinery.runtime.recipe import Recipe


class Options(Recipe):
    """Examples, and how often."""

    examples: Examples = Field(default="zero", description="few: three worked examples, as in the paper; re-thinking compares without any")
    iterations: int = Field(
        default=2, description="re-thinking and MIGRES compare with 2, RA-ISF's Table 1 quotes 3; 1 is RAG with thoughts", ge=1
    )
    max_reasoning_tokens: int = Field(default=300, description="of each generation, all of which goes into the next query", ge=1)


async def decode(question: Question, session: Session, options: Options) -> Prediction:
    """As many searches and calls as iterations."""
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


DECODER = Decoder(decode, Options, needs_retriever=True)
