"""Least-to-most prompting (Zhou et al., 2022): decompose the question, then answer each part with the earlier answers in the prompt."""

from pydantic import Field

from infer.decoders.base import Decoder
from infer.session import Session
from infer.steps.calls import Calls, Limits
from infer.steps.demonstrations import Examples, prompt_with, reason_with
from infer.steps.least_to_most import simpler_questions
from infer.steps.reasoning import concluded
from refinery.contract.records import Passage, Question
from refinery.contract.sub_questions import fill_references
from refinery.contract.trace import Prediction
from refinery.runtime.recipe import Recipe


class Options(Recipe):
    """Worked examples and limits."""

    examples: Examples = Field(
        default="zero", description="few: three worked examples in the prompts of both stages; the paper also shows examples in both"
    )
    max_parts: int = Field(default=6, description="maximum number of simpler questions answered before the question itself", ge=0)
    max_reasoning_tokens: int = Field(default=200, description="maximum tokens of the decomposition and of each answer", ge=1)


async def decode(question: Question, session: Session, options: Options) -> Prediction:
    """Make one call to decompose the question, one for each part, and one for the question itself."""
    limit = options.max_reasoning_tokens
    named = await simpler_questions(question.text, session, examples=options.examples, max_new_tokens=limit)
    parts = named[: options.max_parts]
    solved: list[tuple[str, str]] = []
    read: list[Passage] = []
    for depth, part in enumerate([*parts, question.text], 1):
        if depth <= len(parts):  # a part may refer to an earlier answer as #1, because the model wrote it before that answer existed
            part = fill_references(part, [answer for _, answer in solved])
        passages = await session.search(part, depth=depth) if session.retriever else []
        read += passages
        reply = await reason_with(
            options.examples,
            "answer",
            "least_to_most_answer",
            part,
            session,
            solved=solved,
            passages=passages,
            depth=depth,
            max_new_tokens=limit,
        )
        solved.append((part, concluded(reply, part, session, depth=depth)))
    return session.prediction(solved[-1][1], read=read)


def plan(options: Options, limits: Limits) -> list[Calls]:
    """One call to decompose, and one for each part and the question itself, which read the earlier answers."""
    most, parts = options.max_reasoning_tokens, options.max_parts
    decompose, answer = (prompt_with(options.examples, f"least_to_most_{stage}") for stage in ("decompose", "answer"))
    return [
        Calls("decompose", (1, 1), most, prompt=decompose),
        Calls("answer", (1, 1 + parts), most, limits.passages, replies=2 * parts * most, prompt=answer),
    ]


# RA-ISF Table 1 runs it without a retriever; if the recipe has one, it is searched with each part
DECODER = Decoder(decode, Options, plan=plan)
