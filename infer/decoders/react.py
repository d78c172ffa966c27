"""ReAct (Yao et al., 2022): thoughts and actions alternate; a search returns an observation, and `Finish[...]` gives the answer."""

import re

from pydantic import Field

from infer.decoders.base import Decoder
from infer.session import Session
from infer.steps.ask import record_fault
from infer.steps.calls import Calls, Limits
from infer.steps.demonstrations import Examples, prompt_with, reason_with
from infer.steps.reasoning import completed
from refinery.contract.records import Passage, Question
from refinery.contract.trace import Prediction
from refinery.runtime.recipe import Recipe

_ACTION = re.compile(r"^(?P<before>.*?)\b(?P<name>search|finish)\[(?P<argument>[^\]\n]*)\]?", re.IGNORECASE | re.DOTALL)


class Options(Recipe):
    """Worked examples and limits."""

    examples: Examples = Field(default="zero", description="few: three worked examples; the paper shows six (HotpotQA) or three (FEVER)")
    max_steps: int = Field(default=5, description="maximum searches before the model must answer; the paper allows 5 to 7", ge=0)
    max_reasoning_tokens: int = Field(default=150, description="maximum tokens of each thought with its action", ge=1)


async def decode(question: Question, session: Session, options: Options) -> Prediction:
    """Repeat thought, action and observation until the model finishes."""
    steps: list[tuple[str, list[Passage]]] = []
    asked: set[str] = set()
    while len(steps) < options.max_steps:
        depth = len(steps)
        said = await _say(question.text, steps, session, options, must_answer=False)
        action = _ACTION.match(said)
        if action is None:
            if said:
                record_fault(session, question.text, "no_action", said[:80], depth=depth)
            break
        if action["name"].lower() == "finish":
            return session.prediction(completed(action["argument"], said, question.text, session, depth=depth))
        # Anything that the model makes up after its action, such as an observation, is dropped.
        query = action["argument"].strip() or question.text
        if query in asked:
            record_fault(session, question.text, "repeated", f"Search[{query}]", depth=depth)
        asked.add(query)
        steps.append((f"Thought:{action['before']}Search[{query}]", await session.search(query, depth=depth)))
    said = await _say(question.text, steps, session, options, must_answer=True)
    return session.prediction(completed(_opened(said), said, question.text, session, depth=len(steps)))


async def _say(question: str, steps: list[tuple[str, list[Passage]]], session: Session, options: Options, *, must_answer: bool) -> str:
    return await reason_with(
        options.examples,
        "react",
        "react",
        question,
        session,
        steps=steps,
        must_answer=must_answer,
        depth=len(steps),
        max_new_tokens=options.max_reasoning_tokens,
    )


def _opened(said: str) -> str:
    """The text that completes `Finish[`. A chat model may repeat the action, or search once more, which is not an answer."""
    action = _ACTION.match(said)
    if action is None:
        return said.partition("]")[0]
    return action["argument"] if action["name"].lower() == "finish" else ""


def plan(options: Options, limits: Limits) -> list[Calls]:
    """A call for each search, and one that finishes; each reads all searches before it."""
    most, steps = options.max_reasoning_tokens, options.max_steps
    prompt = prompt_with(options.examples, "react")
    return [Calls("react", (1, steps + 1), most, steps * limits.passages, replies=steps * (most + 10), prompt=prompt)]


DECODER = Decoder(decode, Options, needs_retriever=True, plan=plan)
