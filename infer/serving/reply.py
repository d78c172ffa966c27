"""What clients get of a prediction, whole or as server-sent events while the decoder works; `formats` has what endpoints make of it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from infer.prompt_fitting import fit_text
from infer.serving.annotations import Annotation, annotations
from infer.serving.errors import ApiError
from infer.serving.request import ChatBody, Json
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


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client gets of a prediction, whatever the format: its text, why it ends, what it rests on and what it cost.

    The extension `refinery` says whether the question is `answered`, and holds trace, paths, selections and cost.
    """

    text: str
    finish_reason: Literal["stop", "length", "content_filter"]
    annotations: list[Annotation]
    prompt_tokens: int
    completion_tokens: int
    extension: dict[str, Any]

    @classmethod
    def of(cls, request: ChatBody, prediction: Prediction, shown: Shown) -> "Answer":
        """The answer within the client's limits. Its tokens are those that all calls of the decoder read and wrote."""
        text, finish_reason = _content(request, prediction, shown)
        cost = prediction.cost
        return cls(
            text, finish_reason, annotations(prediction, text), cost.prefill_tokens, cost.decode_tokens, _extension(request, prediction)
        )


class Format(Protocol):
    """How one endpoint writes an answer: whole, or as the events of a stream. One object serves one request."""

    id_prefix: ClassVar[str]
    last_event: ClassVar[str]

    def __init__(self, request: ChatBody, reply_id: str) -> None: ...

    def whole(self, answer: Answer) -> Json:
        """The reply to a client that does not stream."""
        ...

    def opening(self) -> Iterable[Json]:
        """The events before the answer is known."""
        ...

    def text(self, text: str) -> Iterable[Json]:
        """The events of a part of the answer."""
        ...

    def step(self, line: str) -> Iterable[Json]:
        """The events that tell a step; none where the format has no place for it."""
        ...

    def closing(self, answer: Answer) -> Iterable[Json]:
        """The events after the answer's last part."""
        ...

    def failed(self, error: ApiError) -> Iterable[Json]:
        """The events of a stream that ends without an answer."""
        ...


async def events(
    form: Format,
    body: ChatBody,
    answering: "asyncio.Future[Prediction]",
    happened: "asyncio.Queue[Happened]",
    shown: Shown,
) -> AsyncIterator[str]:
    """The stream: each step as it happens and the answer as it is written, with a comment after some seconds of silence to keep the
    connection open, and at the end what is left of the answer."""
    told = ""
    try:
        yield _lines(form.opening())
        async for one in _until_done(happened):
            if isinstance(one, str):
                told += one
                yield _lines(form.text(one))
            else:
                yield _lines(form.step(step_line(one))) if one else ": thinking\n\n"
        answer = Answer.of(body, answering.result(), shown)
        yield _lines(form.text(answer.text.removeprefix(told)))
        yield _lines(form.closing(answer)) + form.last_event
    except ApiError as error:
        yield _lines(form.failed(error))
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
    """The answer, cut at the client's stops and limit, with its sources below if they are wanted; and whether it was cut, or withheld."""
    if prediction.has_refusal and not is_answered(prediction):
        return prediction.answer, "content_filter"
    if prediction.abstained and prediction.citations is None:
        return shown.abstaining, "stop"
    stopped = min((prediction.answer.partition(text)[0] for text in request.stops), key=len, default=prediction.answer)
    answer = _cut(stopped, request.limit, shown.tokenizer)
    return answer + (sources(prediction) if shown.with_sources else ""), "stop" if answer == stopped else "length"


def _cut(answer: str, limit: int | None, tokenizer: Tokenizer | None) -> str:
    """The answer's first `limit` tokens. Without a tokenizer a word counts as a token."""
    if limit is None:
        return answer
    if tokenizer is not None:
        return fit_text(answer, limit, tokenizer)
    ends = [word.end() for word in re.finditer(r"\S+", answer)]
    return answer if len(ends) <= limit else answer[: ends[limit - 1]]


def _extension(request: ChatBody, prediction: Prediction) -> Json:
    held = json.loads(prediction.model_dump_json(exclude_none=True, exclude={"question_id", "question", "answer"}))
    guess = {"guess": prediction.citations.draft if prediction.citations else prediction.answer} if prediction.abstained else {}
    return held | guess | {"answered": is_answered(prediction), "ignored": request.ignored}


def _lines(events: Iterable[Json]) -> str:
    """Server-sent events; one with a type is also named by it."""
    named = ((f"event: {event['type']}\n" if "type" in event else "", event) for event in events)
    return "".join(f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n" for name, event in named)
