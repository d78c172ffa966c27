"""Self-RAG's long answers: a beam search over segments, each written with one passage in view (Sec. 3.3; `run_long_form_static.py`).

A segment ends where the model asks for a search, or where it says that none is needed although [Retrieval] is probable. As in the script,
every segment chooses among the passages of the question. Passages are not part of the next segment's context.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from infer.session import Session
from infer.steps.ask import record_reply_fault
from infer.steps.reflection import TOKENS, Critique, after_passage, critique_of, retrieval_share
from refinery.contract.records import Passage
from refinery.contract.segments import Segment, control_token_id
from refinery.llms.base import Context, Generation


@dataclass(frozen=True, slots=True)
class _Line:
    """A partial answer: its segments with the numbers of their passages, the text of it that the model reads, and the segments' scores."""

    segments: tuple[tuple[str, int], ...] = ()
    token_ids: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    has_ended: bool = False


async def long_answer(
    prompt: Context, passages: Sequence[Passage], question: str, session: Session, options: Any
) -> tuple[str, list[Passage]]:
    """The best line's segments, with `citations` each with the number of its passage; and the passages of the segments."""
    beam, official = [_Line()], options.fidelity == "official"
    for depth in range(options.max_segments):
        open_lines = [line for line in beam if not line.has_ended]
        if not open_lines:
            break
        pairs = [(line, number, passage) for line in open_lines for number, passage in enumerate(passages, 1)]
        grown = await asyncio.gather(*(_grown(prompt, *pair, question, session, options, depth=depth) for pair in pairs))
        # The script drops lines that have ended as soon as another one continues.
        kept = [] if official else [line for line in beam if line.has_ended]
        beam = sorted([*kept, *grown], key=lambda line: _value(line, official=official), reverse=True)[: options.beam_width]
    return _text(beam[0], citations=options.citations), [passages[number - 1] for _, number in beam[0].segments]


def _value(line: _Line, *, official: bool) -> float:
    """A line's value: the product of its segments' scores in the script; otherwise their mean, because the paper leaves this open."""
    if not official:
        return sum(line.scores) / len(line.scores)
    product = 1.0
    for score in line.scores:
        product *= score
    return product


async def _grown(
    prompt: Context, line: _Line, number: int, passage: Passage, question: str, session: Session, options: Any, *, depth: int
) -> _Line:
    """The line with one more segment, which is about the passage."""
    context = after_passage(prompt.extend([Segment("", "answer", token_ids=line.token_ids)]), passage)
    reply, has_ended = await _segment(context, session, options)
    critique = await critique_of(context, reply.token_ids, reply.logprobs, session)
    if options.fidelity == "official":
        critique = replace(critique, utility=0.0)  # the script looks for the wrong tokens, and never counts it
    _record(reply, critique, question, session, options, depth=depth)
    segments = (*line.segments, (reply.text, number))
    return _Line(segments, (*line.token_ids, *reply.token_ids), (*line.scores, critique.score(options)), has_ended)


async def _segment(context: Context, session: Session, options: Any) -> tuple[Generation, bool]:
    """One segment, without the token that ends it, and whether the answer ends with it."""
    asks, declines = (control_token_id(TOKENS[role], session.llm.tokenizer) for role in ("retrieval", "no_retrieval"))
    texts, token_ids, logprobs, here = list[str](), list[int](), list[float](), context
    while True:
        left = session.max_new_tokens - len(token_ids)
        reply = await here.generate(max_new_tokens=left, stop=(TOKENS["retrieval"], TOKENS["no_retrieval"]))
        last = reply.token_ids[-1] if reply.token_ids else None
        texts, token_ids, logprobs = [*texts, reply.text], [*token_ids, *reply.token_ids], [*logprobs, *reply.logprobs]
        has_ended = last not in (asks, declines) or len(token_ids) >= session.max_new_tokens
        if last == asks or (last == declines and not has_ended and await _searches_all_the_same(context, token_ids[:-1], options)):
            token_ids, logprobs, has_ended = token_ids[:-1], logprobs[:-1], len(token_ids) >= session.max_new_tokens
            break
        if has_ended:
            break
        here = reply.context
    text = " ".join(filter(None, texts))
    return replace(reply, text=text, token_ids=token_ids, logprobs=logprobs), has_ended


async def _searches_all_the_same(context: Context, before: Sequence[int], options: Any) -> bool:
    """Whether [Retrieval] is probable enough where the model wrote [No Retrieval]."""
    return await retrieval_share(context.extend([Segment("", "answer", token_ids=tuple(before))])) > options.threshold


def _record(reply: Generation, critique: Critique, question: str, session: Session, options: Any, *, depth: int) -> None:
    parts = critique.parts(options)
    session.record(
        "answer", question, depth=depth, text=reply.text, token_ids=reply.token_ids, logprobs=reply.logprobs, probabilities=parts
    )
    record_reply_fault("answer", reply, session, question, depth=depth)


def _text(line: _Line, *, citations: bool) -> str:
    """The text of a line, without segments that repeat an earlier one, as in the script."""
    segments = {text: number for text, number in reversed(line.segments) if text}
    ordered = [(text, segments[text]) for text in dict.fromkeys(text for text, _ in line.segments if text)]
    return " ".join(f"{text.rstrip('.')} [{number}]." if citations else text for text, number in ordered)
