"""Ask the model for a JSON object: one try, one more with the error shown, and a fault in the trace for a reply that stays unusable."""

from typing import TypeVar

from pydantic import BaseModel

from infer.tools import Tools
from refinery.llms.base import Generation
from refinery.llms.json_reply import parse_json_reply, reads_as_refusal
from refinery.prompts.render import render_prompt
from refinery.segments import Segment

T = TypeVar("T", bound=BaseModel)


async def ask_json(name: str, prompt: str, schema: type[T], question: str, tools: Tools, *, depth: int, max_new_tokens: int) -> T | None:
    """The reply as a `schema`, or None: a step of the trace called `fault` then says which of `malformed`, `refused`, `truncated` or
    `empty` it was. Only a malformed reply is asked for again; the others would come back the same."""
    context = tools.context(prompt)
    fault = _Fault("empty", "")
    for _ in range(2):
        reply = await context.generate(max_new_tokens=max_new_tokens)
        tools.note(name, question, depth=depth, text=reply.text)
        try:
            return _read(reply, schema)
        except _Fault as error:
            fault = error
        if fault.reason != "malformed":
            break
        correction = render_prompt("teacher_correction", fault=fault.detail)
        context = reply.context.extend([Segment(f"\n{correction}\n", "prompt")])
    note_fault(tools, question, fault.reason, f"{name}: {fault.detail}", depth=depth)
    return None


def note_fault(tools: Tools, question: str, reason: str, detail: str, *, depth: int) -> None:
    """A `fault` in the trace; its text opens with the reason, which faults are counted by."""
    tools.note("fault", question, depth=depth, text=f"{reason}: {detail}")


class _Fault(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def _read(reply: Generation, schema: type[T]) -> T:
    """The reply as a `schema`. Raises _Fault."""
    if reply.stopped_by == "refused" or reads_as_refusal(reply.text):
        raise _Fault("refused", reply.text[:200])
    if not reply.text:
        raise _Fault("empty", "the model wrote nothing")
    if reply.stopped_by == "length":
        raise _Fault("truncated", f"cut after {reply.text[-40:]!r}; allow more tokens")
    try:
        return parse_json_reply(reply.text, schema)
    except ValueError as error:
        raise _Fault("malformed", str(error)) from None
