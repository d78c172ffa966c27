"""Answer closed-book, without retrieval: the first baseline of both papers."""

from infer.decoders.base import Decoder
from infer.session import Session
from infer.steps.calls import Calls, Limits
from infer.steps.reasoning import answered
from refinery.contract.records import Question
from refinery.contract.trace import Prediction
from refinery.prompts.render import render_prompt
from refinery.runtime.recipe import Recipe


class Options(Recipe):
    """No options."""


async def decode(question: Question, session: Session, options: Options) -> Prediction:
    """Make one call to the base model."""
    prompt = render_prompt("answer_direct", question=question.text)
    return session.prediction(await answered("answer_direct", prompt, question.text, session))


def plan(options: Options, limits: Limits) -> list[Calls]:
    """One call."""
    return [Calls("answer_direct", (1, 1), writes=limits.answer)]


DECODER = Decoder(decode, Options, plan=plan)
