"""ReAct (Yao et al., 2022): thoughts and actions in turn; a search brings an observation, `Finish[...]` ends with the answer."""

import re

from pydantic import Field

from infer.ask import note_fault
from infer.reasoning import completed, reason
from infer.tools import Tools
from infer.trace import Prediction
from refinery.prompts.render import render_prompt
from refinery.recipe import Recipe
from refinery.records import Passage, Question

NEEDS_RETRIEVER = True

_ACTION = re.compile(r"^(?P<before>.*?)\b(?P<name>search|finish)\[(?P<argument>[^\]\n]*)\]?", re.IGNORECASE | re.DOTALL)


class Options(Recipe):
    """Bounds."""

    max_steps: int = Field(5, description="searches before the answer is asked for; the paper allows 5 to 7", ge=0)
    max_reasoning_tokens: int = Field(150, description="of each thought with its action", ge=1)


async def decode(question: Question, tools: Tools, options: Options) -> Prediction:
    """Thought, action, observation, again."""
    steps: list[tuple[str, list[Passage]]] = []
    while len(steps) < options.max_steps:
        depth = len(steps)
        prompt = render_prompt("react", question=question.text, steps=steps, must_answer=False)
        said = await reason("react", prompt, question.text, tools, depth=depth, max_new_tokens=options.max_reasoning_tokens)
        action = _ACTION.match(said)
        if action is None:
            note_fault(tools, question.text, "no_action", said[:80], depth=depth)
            break
        if action["name"].lower() == "finish":
            return tools.prediction(completed(action["argument"], question.text, tools, depth=depth))
        # What the model makes up after its action, an observation among it, is dropped.
        query = action["argument"].strip() or question.text
        steps.append((f"Thought:{action['before']}Search[{query}]", await tools.search(query, depth=depth)))
    prompt = render_prompt("react", question=question.text, steps=steps, must_answer=True)
    said = await reason("react", prompt, question.text, tools, depth=len(steps), max_new_tokens=options.max_reasoning_tokens)
    return tools.prediction(completed(said.partition("]")[0], question.text, tools, depth=len(steps)))
