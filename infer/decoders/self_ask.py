"""Self-Ask (Press et al., 2022): the model asks itself follow-up questions, each of them a search, until it states the final answer.

It makes one call per follow-up, in which the model answers the last one from its passages and asks the next (MIGRES Table 4 counts 3.2
calls).
"""

import re
from typing import Literal

from pydantic import Field

from infer.decoders.base import Decoder
from infer.session import Session
from infer.steps.ask import record_fault
from infer.steps.calls import Calls, Limits
from infer.steps.demonstrations import Examples
from infer.steps.reasoning import completed, concluded, reason
from refinery.contract.records import Passage, Question
from refinery.contract.trace import Prediction
from refinery.prompts.render import render_prompt
from refinery.runtime.recipe import Recipe

_FOLLOW_UP = re.compile(r"^(?P<before>.*?)\bfollow[- ]?up:[ \t]*(?P<query>[^\n]+)", re.IGNORECASE | re.DOTALL)
# An intermediate answer may say "so the answer is no", as one of RQ-RAG's Table 9 does.
_END = re.compile(r"\bfinal answer(?: is|:)[ \t:]*[^\s:]", re.IGNORECASE)


class Options(Recipe):
    """The prompt and the limits."""

    examples: Examples = Field(default="zero", description="few: three worked examples in the prompt; the paper shows four")
    prompt: Literal["own", "rq_rag"] = Field(default="own", description="rq_rag: the prompt and example of Table 9, passages first")
    max_follow_ups: int = Field(default=4, description="maximum follow-ups before the model must answer", ge=0)
    max_reasoning_tokens: int = Field(default=150, description="maximum tokens of each reply", ge=1)


async def decode(question: Question, session: Session, options: Options) -> Prediction:
    """Ask the follow-ups one after another, and then for the answer."""
    steps: list[tuple[str, list[Passage]]] = []
    queries: set[str] = set()
    name = "self_ask" if options.prompt == "own" else "self_ask_rq_rag"
    while True:
        must_answer = len(steps) == options.max_follow_ups
        prompt = render_prompt(name, question=question.text, steps=steps, examples=options.examples, must_answer=must_answer)
        depth = len(steps)
        said = await reason("self_ask", prompt, question.text, session, depth=depth, max_new_tokens=options.max_reasoning_tokens)
        asked = _FOLLOW_UP.match(said)
        if must_answer:
            # Another follow-up question is not an answer.
            return session.prediction(completed(said if asked is None else asked["before"], said, question.text, session, depth=depth))
        if asked is None or _END.search(asked["before"]):
            return session.prediction(concluded(said if asked is None else asked["before"], question.text, session, depth=depth))
        # Anything that the model makes up after its question, such as passages that were not retrieved yet, is dropped.
        query = asked["query"].strip()
        if query in queries:
            record_fault(session, question.text, "repeated", query, depth=depth)
        queries.add(query)
        steps.append((asked[0], await session.search(query, depth=depth)))


def plan(options: Options, limits: Limits) -> list[Calls]:
    """A call for each follow-up question, and one for the answer; each reads all searches before it."""
    most, steps = options.max_reasoning_tokens, options.max_follow_ups
    prompt = "self_ask" if options.prompt == "own" else "self_ask_rq_rag"
    return [Calls("self_ask", (1, steps + 1), most, steps * limits.passages, replies=steps * (most + 10), prompt=prompt)]


DECODER = Decoder(decode, Options, needs_retriever=True, plan=plan)
