"""Prompts that show worked examples before the question, for the decoders whose papers do.

The examples are those of `refinery/prompts/demonstrations.jinja`; `<prompt>_few.jinja` shows them in the form of `<prompt>.jinja`.
"""

import re
from typing import Any, Literal

from infer.reasoning import reason
from infer.tools import Tools
from refinery.prompts.render import render_prompt

Examples = Literal["zero", "few"]


async def reason_with(
    examples: Examples,
    role: str,
    name: str,
    question: str,
    tools: Tools,
    *,
    depth: int = 0,
    max_new_tokens: int,
    temperature: float = 0.0,
    **values: Any,
) -> str:
    """As `reason`, of the prompt `name` filled with `question` and `values`; with `few`, after worked examples.

    A model that is no chat model goes on with an example of its own once it has answered. That is cut off.
    """
    prompt = render_prompt(name if examples == "zero" else f"{name}_few", question=question, **values)
    reply = await reason(role, prompt, question, tools, depth=depth, max_new_tokens=max_new_tokens, temperature=temperature)
    return reply if examples == "zero" else _before_next_example(reply, opening=prompt.partition("\n")[0])


def _before_next_example(reply: str, *, opening: str) -> str:
    """`opening` is the line that the examples of this prompt begin with; those of other prompts begin with a passage or the question."""
    return re.split(rf"\n(?:{re.escape(opening)}|Title: |Question: )", reply, maxsplit=1)[0]
