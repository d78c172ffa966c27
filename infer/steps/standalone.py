"""Rewrite the last question of a conversation as a standalone question, because decoders and retrievers read only that."""

from infer.fitting import fit_part, valid_text
from infer.session import Session
from infer.steps.ask import record_fault
from infer.steps.reasoning import reason
from refinery.contract.records import Question
from refinery.prompts.render import render_prompt

_MOST_TURNS = 8  # a follow-up refers to something said shortly before
_PART = 2 * (_MOST_TURNS + 1)  # all turns and the question fit into half of the model's context
_QUESTION_TOKENS = 128


async def standalone_question(question: Question, session: Session) -> str:
    """The question, reworded to be understood without its `history`. It takes one call to the model, which reads the last turns.

    If the model does not write a question, the original question is returned, with a `fault` in the trace.
    """
    asked, roles = valid_text(question.text), ("user", "assistant")
    turns = [(roles[number % 2], text) for number, text in enumerate(question.history or [])][-_MOST_TURNS:]
    shown = [(role, fit_part(text, session.llm, _PART)) for role, text in turns if text.strip()]
    prompt = render_prompt("standalone_question", turns=shown, question=fit_part(asked, session.llm, _PART))
    said = await reason("condense", prompt, asked, session, max_new_tokens=_QUESTION_TOKENS)
    if rewritten := next((line.strip() for line in said.splitlines() if line.strip()), None):
        return rewritten
    record_fault(session, asked, "unparsed", "the question was searched as it is, without the conversation", depth=0)
    return asked
