"""Retrieve once with the question, answer from all passages: the vanilla RAG baseline of both papers."""

from infer.reasoning import answered
from infer.tools import Tools
from refinery.prompts.render import render_prompt
from refinery.recipe import Recipe
from refinery.records import Question
from refinery.trace import Prediction

NEEDS_RETRIEVER = True


class Options(Recipe):
    """No switches; the number of passages is the recipe's `passages_per_query`."""


async def decode(question: Question, tools: Tools, options: Options) -> Prediction:
    """One search, one call."""
    passages = await tools.search(question.text)
    prompt = render_prompt("answer_with_passages", question=question.text, passages=passages)
    return tools.prediction(await answered("answer_with_passages", prompt, question.text, tools))
