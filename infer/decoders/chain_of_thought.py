"""Chain-of-thought (Wei et al., 2022; zero-shot as Kojima et al., 2022): think step by step, closed-book or over what one search finds."""

from pydantic import Field

from infer.reasoning import concluded, reason
from infer.tools import Tools
from infer.trace import Prediction
from refinery.prompts.render import render_prompt
from refinery.recipe import Recipe
from refinery.records import Question

NEEDS_RETRIEVER = False  # one in the recipe is searched once with the question


class Options(Recipe):
    """How much may be thought."""

    max_reasoning_tokens: int = Field(300, description="thoughts and answer together", ge=1)


async def decode(question: Question, tools: Tools, options: Options) -> Prediction:
    """One call."""
    passages = await tools.search(question.text) if tools.retriever else []
    prompt = render_prompt("chain_of_thought", question=question.text, passages=passages)
    thoughts = await reason("chain_of_thought", prompt, question.text, tools, max_new_tokens=options.max_reasoning_tokens)
    return tools.prediction(concluded(thoughts, question.text, tools))
