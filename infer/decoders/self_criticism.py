"""Self-Criticism (Kim et al., 2023): answer, find problems, improve; with knowledge that is retrieved first (re-thinking Sec. 4.3)."""

from pydantic import Field

from infer.decoders.base import Decoder
from infer.session import Session
from infer.steps.calls import Calls, Limits
from infer.steps.reasoning import concluded, reason
from refinery.contract.records import Question
from refinery.contract.trace import Prediction
from refinery.prompts.render import render_prompt
from refinery.runtime.recipe import Recipe


class Options(Recipe):
    """The number of rounds and the length of replies."""

    rounds: int = Field(default=1, description="how often problems are found and the answer is improved", ge=1)
    max_reasoning_tokens: int = Field(default=300, description="maximum tokens of each reply", ge=1)


async def decode(question: Question, session: Session, options: Options) -> Prediction:
    """Make one call for the first answer, and two calls per round."""
    passages = await session.search(question.text) if session.retriever else []
    known = {"question": question.text, "passages": passages}
    limit = options.max_reasoning_tokens
    answer = await reason("answer", render_prompt("chain_of_thought", **known), question.text, session, max_new_tokens=limit)
    for depth in range(options.rounds):
        prompt = render_prompt("self_criticism_problems", **known, answer=answer)
        problems = await reason("problems", prompt, question.text, session, depth=depth, max_new_tokens=limit)
        prompt = render_prompt("self_criticism_improve", **known, answer=answer, problems=problems)
        # An empty improvement leaves the answer unchanged.
        answer = await reason("improve", prompt, question.text, session, depth=depth, max_new_tokens=limit) or answer
    return session.prediction(concluded(answer, question.text, session))


def plan(options: Options, limits: Limits) -> list[Calls]:
    """One call, and two for each round, which read the answer so far."""
    most, rounds = options.max_reasoning_tokens, (options.rounds, options.rounds)
    return [
        Calls("answer", (1, 1), most, limits.passages, prompt="chain_of_thought"),
        Calls("problems", rounds, most, limits.passages, replies=most, prompt="self_criticism_problems"),
        Calls("improve", rounds, most, limits.passages, replies=2 * most, prompt="self_criticism_improve"),
    ]


DECODER = Decoder(decode, Options, plan=plan)  # re-thinking Table 4 retrieves first; the original method does not
