"""Write a prediction as a chat completion, or as server-sent events: what the decoder does while it works, and at the end its answer."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from infer.prompt_fitting import fit_text
from infer.serving.errors import ApiError
from infer.serving.request import ChatBody
from infer.serving.sources import sources
from infer.steps.cited_answer import is_answered
from refinery.contract.tokenizer import Tokenizer
from refinery.contract.trace import Prediction, TraceStep
from refinery.reporting.markdown import escaped

# What a client is told while it waits: a step, a part of the answer, or that there is nothing more.
Happened = TraceStep | str | None
_KEEP_ALIVE_SECONDS = 10.0
_MOST_CHARACTERS = 300
_MOST_TITLES = 5
_INDENT = "  "
_DID = {
    "condense": "Reworded the question as",
    "rewrite": "Rewrote the query as",
    "decompose": "Broke the question down into",
    "disambiguate": "Read the question as",
    "self_knowledge": "Asked itself whether it knows the answer",
    "relevance": "Judged the passage",
    "unresolved": "Could not resolve the question",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """What a client gets of an answer: with its sources or without; `tokenizer` counts the tokens of the client's limit.

    `abstaining` is said in place of an answer that the decoder is not sure enough of.
    """

    tokenizer: Tokenizer | None
    with_sources: bool
    abstaining: str = ""


def completion(request: ChatBody, prediction: Prediction, shown: Shown) -> dict[str, Any]:
    """The whole reply. Its extension `refinery` says whether the question is `answered`, and holds trace, paths, selections and cost."""
    content, finish_reason = _content(request, prediction, shown)
    message = {"role": "assistant", "content": content, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
    return _head(request, prediction.question_id, "chat.completion") | {
        "choices": [choice],
        "usage": _usage(prediction),
        "refinery": _extension(request, prediction),
    }


async def events(
    body: ChatBody,
    completion_id: str,
    answering: "asyncio.Future[Prediction]",
    happened: "asyncio.Queue[Happened]",
    shown: Shown,
) -> AsyncIterator[str]:
    """The stream: each step as it happens and the answer as it is written, with a comment after some seconds of silence to keep the
    connection open, and at the end what is left of the answer."""
    told = ""
    try:
        yield _opening_chunk(body, completion_id)
        async for one in _until_done(happened):
            if isinstance(one, str):
                told += one
                yield _text_chunk(body, completion_id, one)
            else:
                yield _step_chunk(body, completion_id, one) if one else ": thinking\n\n"
        for event in _closing_chunks(body, answering.result(), shown, told):
            yield event
    except ApiError as error:
        yield _event(error.body)
    finally:
        answering.cancel()


async def _until_done(happened: "asyncio.Queue[Happened]") -> AsyncIterator[Happened]:
    """What happened until the end of the queue, which is None; here None means that there was nothing for some seconds."""
    while True:
        try:
            async with asyncio.timeout(_KEEP_ALIVE_SECONDS):
                one = await happened.get()
        except TimeoutError:
            yield None
        else:
            if one is None:
                return
            yield one


def _opening_chunk(request: ChatBody, completion_id: str) -> str:
    """The first event of a stream, which is sent before the answer is known."""
    return _event(_chunk(request, completion_id, {"role": "assistant", "content": ""}))


def _text_chunk(request: ChatBody, completion_id: str, text: str) -> str:
    return _event(_chunk(request, completion_id, {"content": text}))


def _step_chunk(request: ChatBody, completion_id: str, step: TraceStep) -> str:
    """An event that tells a step; interfaces show `reasoning_content` apart from the answer."""
    return _event(_chunk(request, completion_id, {"reasoning_content": step_line(step)}))


def _closing_chunks(request: ChatBody, prediction: Prediction, shown: Shown, told: str) -> Iterator[str]:
    """The events that end a stream: the answer after what is `told` of it, the extension, and usage if requested."""
    completion_id = prediction.question_id
    content, finish_reason = _content(request, prediction, shown)
    yield _text_chunk(request, completion_id, content.removeprefix(told))
    yield _event(_chunk(request, completion_id, {}, finish_reason=finish_reason) | {"refinery": _extension(request, prediction)})
    if request.stream_options and request.stream_options.include_usage:
        yield _event(_head(request, completion_id, "chat.completion.chunk") | {"choices": [], "usage": _usage(prediction)})
    yield "data: [DONE]\n\n"


def step_line(step: TraceStep) -> str:
    """The step as an item of a list, which is indented by the step's depth. Text from outside is shown literally."""
    about = f" ({_shortened(step.question)})" if step.depth and step.name != "retrieve" else ""
    return f"{_INDENT * step.depth}- {_searched(step) if step.name == 'retrieve' else _did(step, about)}\n"


def _searched(step: TraceStep) -> str:
    titles = [escaped(passage.title or passage.id) for passage in step.passages or []]
    more = f" and {len(titles) - _MOST_TITLES} more" if len(titles) > _MOST_TITLES else ""
    return f'Searched for "{_shortened(step.question)}": {"; ".join(titles[:_MOST_TITLES]) or "found nothing"}{more}'


def _did(step: TraceStep, about: str) -> str:
    name = _DID.get(step.name) or escaped(step.name.replace("_", " ").capitalize())
    said = [_shortened(step.text)] if step.text else []
    if step.probabilities:
        label = max(step.probabilities, key=step.probabilities.__getitem__)
        said.append(f"{escaped(label)} ({step.probabilities[label]:.0%})")
    if step.reasoning:
        said.append(f"thought: {_shortened(step.reasoning)}")
    return f"{name}{about}{': ' if said else ''}{', '.join(said)}"


def _shortened(text: str) -> str:
    text = "; ".join(line.strip() for line in text.splitlines() if line.strip())
    return escaped(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…")


def _content(request: ChatBody, prediction: Prediction, shown: Shown) -> tuple[str, Literal["stop", "length", "content_filter"]]:
    """The answer, cut to the client's limit, with its sources below if they are wanted; and whether it was cut, or withheld."""
    if prediction.has_refusal and not is_answered(prediction):
        return prediction.answer, "content_filter"
    if prediction.abstained and prediction.citations is None:
        return shown.abstaining, "stop"
    answer = _cut(prediction.answer, request.limit, shown.tokenizer)
    return answer + (sources(prediction) if shown.with_sources else ""), "stop" if answer == prediction.answer else "length"


def _cut(answer: str, limit: int | None, tokenizer: Tokenizer | None) -> str:
    """The answer's first `limit` tokens. Without a tokenizer a word counts as a token."""
    if limit is None:
        return answer
    if tokenizer is not None:
        return fit_text(answer, limit, tokenizer)
    ends = [word.end() for word in re.finditer(r"\S+", answer)]
    return answer if len(ends) <= limit else answer[: ends[limit - 1]]


def _head(request: ChatBody, completion_id: str, kind: str) -> dict[str, Any]:
    return {"id": completion_id, "object": kind, "created": int(time.time()), "model": request.model}


def _chunk(request: ChatBody, completion_id: str, delta: dict[str, str], *, finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return _head(request, completion_id, "chat.completion.chunk") | {"choices": [choice]}


def _usage(prediction: Prediction) -> dict[str, int]:
    """The tokens that all calls of the decoder read and wrote."""
    read, written = prediction.cost.prefill_tokens, prediction.cost.decode_tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _extension(request: ChatBody, prediction: Prediction) -> dict[str, Any]:
    held = json.loads(prediction.model_dump_json(exclude_none=True, exclude={"question_id", "question", "answer"}))
    guess = {"guess": prediction.citations.draft if prediction.citations else prediction.answer} if prediction.abstained else {}
    return held | guess | {"answered": is_answered(prediction), "ignored": request.ignored}


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
