"""Rewrite the last question of a conversation as a standalone question, because decoders and retrievers read only that."""

import re
from collections.abc import Sequence

from infer.prompt_fitting import fit_part, valid_text
from infer.session import Session
from infer.steps.ask import record_fault, reply_fault
from refinery.contract.records import Question
from refinery.contract.segments import Segment
from refinery.errors import IncapableModelError
from refinery.llms.base import LLM, Generation
from refinery.prompts.render import render_prompt
from refinery.text import quoted
from refinery.unspaced import first_words

_MOST_TURNS = 8  # a follow-up refers to a recent turn
_PART = 3 * (_MOST_TURNS + 1)  # all turns and the question fit into a third of the model's context
_QUESTION_TOKENS, _CHAT_TOKENS = 64, 1_024
_QUESTION_MARKS = frozenset("?\uff1f\u061f")  # also full-width, and Arabic
_STEM = 4  # letters that identify a word in another inflection
_KEPT = 2 / 3  # of the question's words
_MOST_WORDS = 12  # of each text of the turn before
_REFERRING = frozenset(
    "about another does first have here last latter more next other others same that their them then there these they this those "
    "what".split()
)
_PRONOUNS = frozenset("it he she they him her his hers its their them".split())
_NAME = re.compile(r"(?<!^)\b(?:[^\W\d_]\w*|\d+)")
_ROLES = ("user", "assistant")


async def standalone_question(question: Question, session: Session) -> str:
    """The question, reworded to be understood without its `history`. It takes one call to the model, which reads the last turns.

    The model's text is rejected if it is not a question, lacks words of the question, has only invented names, or still names nothing.
    Then a question that names something is asked unchanged, and any other is preceded by the last turn, with a `fault` in the trace.
    """
    asked, history = valid_text(question.text), question.history or []
    turns = [(_ROLES[number % 2], text) for number, text in enumerate(history) if text.strip()]
    turns = [(role, fit_part(text, session.llm, _PART)) for role, text in turns[-_MOST_TURNS:]]
    reply = await _reworded(turns, asked, session)
    rewritten = next((line.strip() for line in reply.text.splitlines() if line.strip()), "")
    said = [text for _, text in turns]
    fault = _fault(reply, rewritten, asked, said)
    if fault is None:
        return rewritten
    alone = asked if _names(asked) else " ".join([*(first_words(text, _MOST_WORDS) for text in said[-2:]), asked])
    record_fault(session, asked, fault[0], f"condense: {fault[1]}; asked as {alone[-200:]!r}", depth=0)
    return alone


async def _reworded(turns: Sequence[tuple[str, str]], asked: str, session: Session) -> Generation:
    """The model's standalone question, recorded in the trace.

    Small instruct models complete the examples better than they follow the instruction: on 48 questions of CANARD, SmolLM2-135M reaches F1
    44 of the gold rewrites by completion, 60 after the checks of `_fault`, and 19 through its chat template.
    """
    llm, limit = session.llm, session.llm.context_limit
    shown = [(role, fit_part(quoted(text), llm, _PART)) for role, text in turns]
    prompt = render_prompt("standalone_question", turns=shown, question=fit_part(quoted(asked), llm, _PART))
    context = session.context([Segment(prompt, "prompt")])
    if _completes(llm):
        reply = await context.generate(max_new_tokens=_QUESTION_TOKENS, stop_texts=("\n",))
    else:  # a model behind a chat endpoint may reason first
        reply = await context.generate(max_new_tokens=min(_CHAT_TOKENS, limit // 3) if limit else _CHAT_TOKENS)
    session.record_reply("condense", asked, reply, None, depth=0, prompt=prompt)
    return reply


def _completes(llm: LLM) -> bool:
    """Whether the model continues a text, and does not reply to it as an assistant behind a chat endpoint does."""
    try:
        return llm.tokenizer is not None
    except IncapableModelError:
        return False


def _fault(reply: Generation, rewritten: str, asked: str, turns: Sequence[str]) -> tuple[str, str] | None:
    """The reason why the model's text cannot replace the question, or None."""
    if fault := reply_fault(reply):
        return fault
    if _QUESTION_MARKS & set(asked) and not _QUESTION_MARKS & set(rewritten):
        return "unparsed", f"{rewritten[:80]!r} is not a question"
    kept, stems = rewritten.casefold(), _stems(asked)
    if sum(stem in kept for stem in stems) < _KEPT * len(stems):
        return "unparsed", f"{rewritten[:80]!r} is another question"
    names, known = _names(rewritten), " ".join([*turns, asked]).casefold()
    if not names and _PRONOUNS.intersection(map(_bare, rewritten.casefold().split())):
        return "unparsed", f"{rewritten[:80]!r} still needs the conversation"
    if names and not any(name.casefold()[:_STEM] in known for name in names):
        return "unparsed", f"{rewritten[:80]!r} names nothing of the conversation"
    return None


def _stems(asked: str) -> list[str]:
    """The stems of the longer words of a question that refer to nothing. There are none if it has no spaces between words."""
    words = asked.casefold().split()
    return [word[:_STEM] for word in map(_bare, words) if len(word) >= _STEM and word not in _REFERRING] if len(words) > 1 else []


def _bare(word: str) -> str:
    return word.strip(".,;:!?\"'()")


def _names(text: str) -> list[str]:
    """The numbers and capitalized words of a text, without its first word."""
    return [name for name in _NAME.findall(text.strip()) if name[0].isupper() or name[0].isdigit()]
