"""Least-to-most prompting (Zhou et al., 2022): break the question down, then answer part by part, each with those before it in view."""

from pydantic import Field

from infer.reasoning import concluded, reason
from infer.tools import Tools
from infer.trace import Prediction
from refinery.prompts.render import render_prompt
from refinery.recipe import Recipe
from refinery.records import Question
from refinery.sub_models import parse_sub_questions

NEEDS_RETRIEVER = False  # RA-ISF's Table 1 runs it without; one in the recipe is searched with each part


class Options(Recipe):
    """Bounds."""

    max_parts: int = Field(6, description="simpler questions answered before the question itself", ge=0)
    max_reasoning_tokens: int = Field(200, description="of the decomposition, and of each answer", ge=1)


async def decode(question: Question, tools: Tools, options: Options) -> Prediction:
    """One call to break the question down, one for each part, and one for the question."""
    prompt = render_prompt("least_to_most_decompose", question=question.text)
    listed = await reason("decompose", prompt, question.text, tools, max_new_tokens=options.max_reasoning_tokens)
    parts = [part for part in parse_sub_questions(listed) if part != question.text][: options.max_parts]
    solved: list[tuple[str, str]] = []
    for depth, part in enumerate([*parts, question.text], 1):
        passages = await tools.search(part, depth=depth) if tools.retriever else []
        prompt = render_prompt("least_to_most_answer", question=part, solved=solved, passages=passages)
        reply = await reason("answer", prompt, part, tools, depth=depth, max_new_tokens=options.max_reasoning_tokens)
        solved.append((part, concluded(reply, part, tools, depth=depth)))
    return tools.prediction(solved[-1][1])
