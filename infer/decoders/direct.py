"""Answer closed-book, without retrieval: the first baseline of both papers."""

from infer.reasoning import answered
from infer.tools import Tools
from refinery.prompts.render import render_prompt
from refinery.recipe import Recipe
from refinery.records import Question
from refinery.trace import Prediction

NEEDS_RETRIEVER = False


class Options(Recipe):
    """No switches."""


async def decode(question: Question, tools: Tools, options: Options) -> Prediction:
    """One call to the base model."""
    prompt = render_prompt("answer_direct", question=question.text)
    return tools.prediction(await answered("answer_direct", prompt, question.text, tools))
