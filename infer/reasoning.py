"""What decoders that reason aloud share: one call of the base model, and the answer that its words end in."""

import re

from infer.ask import note_fault
from infer.tools import Tools

UNKNOWN = "unknown"
# The form that every reasoning prompt asks for (RQ-RAG Tables 7 and 8, "The answer is _"; Self-Ask's "So the final answer is:").
_CONCLUSION = re.compile(r"(?<!intermediate )\banswer(?: to the question)?(?: is|:)[ \t]*:?[ \t]*([^\n]*)", re.IGNORECASE)


async def reason(name: str, prompt: str, question: str, tools: Tools, *, depth: int = 0, max_new_tokens: int) -> str:
    """What the base model writes after `prompt`, noted in the trace under `name`; empty where the model declined."""
    reply = await tools.context(prompt).generate(max_new_tokens=max_new_tokens)
    tools.note(name, question, depth=depth, text=reply.text, token_ids=reply.token_ids, logprobs=reply.logprobs)
    return reply.text


def final_answer(text: str) -> str | None:
    """What the last "answer is" or "answer:" of a text is followed by, without closing punctuation; None where there is none."""
    stated = [found[1].strip().strip("*\"'_ ").removesuffix(".").strip() for found in _CONCLUSION.finditer(text)]
    return next((answer for answer in reversed(stated) if answer), None)


def concluded(text: str, question: str, tools: Tools, *, depth: int = 0) -> str:
    """The answer that a text ends in. Without one its last line stands in for it, `unknown` for an empty text, and a `fault` is noted."""
    answer = final_answer(text)
    if answer is not None:
        return answer
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    note_fault(tools, question, "unextracted" if lines else "empty", f"no answer in {text[-80:]!r}", depth=depth)
    return lines[-1] if lines else UNKNOWN


def completed(text: str, question: str, tools: Tools, *, depth: int = 0) -> str:
    """The answer where the prompt itself opened it: the first line, or `unknown` with a `fault` where there is none."""
    answer = text.strip().partition("\n")[0].strip().removesuffix(".")
    if not answer:
        note_fault(tools, question, "empty", "no answer where one was opened", depth=depth)
    return answer or UNKNOWN
