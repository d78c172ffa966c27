"""Rewrite the last question of a conversation as a standalone question, because decoders and retrievers read only that."""

from collections.abc import Sequence

from infer.fitting import fit_text, valid_text
from infer.session import Session
from infer.steps.ask import record_fault
from infer.steps.reasoning import reason
from refinery.contract.trace import Cost, Prediction
from refinery.llms.base import LLM
from refinery.prompts.render import render_prompt

_MOST_TURNS = 8  # a follow-up refers to something said shortly before
_MOST_CHARACTERS = 2_000  # of a turn, if the model's context limit is unknown
_QUESTION_TOKENS = 128

Turns = Sequence[tuple[str, str]]  # role and text


async def standalone_question(turns: Turns, session: Session) -> str:
    """The question of `session`, which followed `turns`, reworded to be understood without them. It takes one call to the model.

    If the model does not write a question, the original question is returned, with a `fault` in the trace.
    """
    asked = session.question.text
    shown = [(role, _fitted(text, session.llm)) for role, text in turns[-_MOST_TURNS:]]
    prompt = render_prompt("standalone_question", turns=shown, question=_fitted(asked, session.llm))
    said = await reason("condense", prompt, asked, session, max_new_tokens=_QUESTION_TOKENS)
    if rewritten := next((line.strip() for line in said.splitlines() if line.strip()), None):
        return rewritten
    record_fault(session, asked, "unparsed", "the question was searched as it is, without the conversation", depth=0)
    return asked


def joined(before: Session, prediction: Prediction) -> Prediction:
    """The prediction, including the steps and the cost of the session before it."""
    cost, usage = prediction.cost, before.usage
    whole = Cost(
        calls=cost.calls + usage.calls,
        retrievals=cost.retrievals + before.retrievals,
        prefill_tokens=cost.prefill_tokens + usage.prefill_tokens,
        decode_tokens=cost.decode_tokens + usage.decode_tokens,
    )
    return prediction.model_copy(update={"trace": [*before.trace, *prediction.trace], "cost": whole})


def _fitted(text: str, llm: LLM) -> str:
    """The beginning of a turn, cut so that all turns and the question fit into half of the model's context."""
    limit = llm.context_limit
    text = valid_text(text)
    if limit is None:
        return text[:_MOST_CHARACTERS]
    return fit_text(text, limit // (2 * (_MOST_TURNS + 1)), llm.token_counter)
