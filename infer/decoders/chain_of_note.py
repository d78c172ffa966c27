"""Chain-of-Note (Yu et al., 2023): reading notes on every passage and their relevance, then the answer, in one reply."""

from pydantic import Field

from infer.reasoning import concluded, reason
from infer.tools import Tools
from infer.trace import Prediction
from refinery.prompts.render import render_prompt
from refinery.recipe import Recipe
from refinery.records import Question

NEEDS_RETRIEVER = True


class Options(Recipe):
    """How long the notes may be."""

    max_note_tokens: int = Field(500, description="notes and answer together", ge=1)


async def decode(question: Question, tools: Tools, options: Options) -> Prediction:
    """One search, one call."""
    passages = await tools.search(question.text)
    prompt = render_prompt("chain_of_note", question=question.text, passages=passages)
    notes = await reason("chain_of_note", prompt, question.text, tools, max_new_tokens=options.max_note_tokens)
    return tools.prediction(concluded(notes, question.text, tools))
