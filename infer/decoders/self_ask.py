"""Self-Ask (Press et al., 2022): the model asks itself follow-up questions, each is searched for, until it states the final answer.

One call a follow-up: it answers the last one from its context and asks the next (MIGRES Table 4 counts 3.2 calls).
"""

import re
from typing import Literal

from pydantic import Field

from infer.reasoning import completed, concluded, final_answer, reason
from infer.tools import Tools
from infer.trace import Prediction
from refinery.prompts.render import render_prompt
from refinery.recipe import Recipe
from refinery.records import Passage, Question

NEEDS_RETRIEVER = True

_FOLLOW_UP = re.compile(r"^(?P<before>.*?)\bfollow[- ]?up:[ \t]*(?P<query>[^\n]+)", re.IGNORECASE | re.DOTALL)


class Options(Recipe):
    """Prompt and bounds."""

    examples: Literal["zero", "few"] = Field("zero", description="few puts a worked example into the prompt")
    max_follow_ups: int = Field(4, description="then the answer is asked for", ge=0)
    max_reasoning_tokens: int = Field(150, description="of each reply", ge=1)


async def decode(question: Question, tools: Tools, options: Options) -> Prediction:
    """Follow-ups one after another, then the answer."""
    steps: list[tuple[str, list[Passage]]] = []
    while True:
        must_answer = len(steps) == options.max_follow_ups
        prompt = render_prompt("self_ask", question=question.text, steps=steps, examples=options.examples, must_answer=must_answer)
        depth = len(steps)
        said = await reason("self_ask", prompt, question.text, tools, depth=depth, max_new_tokens=options.max_reasoning_tokens)
        if must_answer:
            return tools.prediction(completed(said, question.text, tools, depth=depth))
        asked = _FOLLOW_UP.match(said)
        if asked is None or final_answer(asked["before"]) is not None:
            return tools.prediction(concluded(said if asked is None else asked["before"], question.text, tools, depth=depth))
        # What the model makes up after its question, the context it was not given yet among it, is dropped.
        steps.append((asked[0], await tools.search(asked["query"].strip(), depth=depth)))
