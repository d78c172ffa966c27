"""Requests to a /v1/completions route and what comes back: written tokens, label reads, and log-probabilities of a given text.

Each of the two reads exists in several dialects (vLLM, SGLang, llama.cpp, OpenAI). They stand here side by side, so that the probe of
`capabilities.py` proves exactly the requests that `completions.py` sends.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from refinery.contract.tokenizer import Tokenizer
from refinery.errors import LLMError
from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest, Reply
from refinery.llms.served.wire import token_count

LabelReads = Literal["logprob_token_ids", "allowed_token_ids", "top_logprobs"]
TextScores = Literal["prompt_logprobs", "echo"]

# The most log-probabilities a position may be asked for at OpenAI; other servers allow more.
_TOP = 5
# OpenAI's largest logit bias: the biased tokens are then the likeliest.
FORCED = 100


class _Logprobs(BaseModel):
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Logprob(BaseModel):
    logprob: float


class _Choice(BaseModel):
    text: str
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    prompt_logprobs: list[dict[str, _Logprob] | None] | None = None


_Count = Annotated[int, BeforeValidator(token_count)]


def _object(value: Any) -> Any:
    """What is no object counts as one that is not there."""
    return value if isinstance(value, dict) else None


class _Details(BaseModel):
    cached_tokens: _Count = 0


class _Usage(BaseModel):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0
    prompt_tokens_details: Annotated[_Details | None, BeforeValidator(_object)] = None


class _Completion(BaseModel):
    """What is read of a reply; servers add fields of their own."""

    id: str = ""
    model: str = ""
    choices: list[_Choice] = Field(min_length=1)
    usage: Annotated[_Usage | None, BeforeValidator(_object)] = None


@dataclass(frozen=True, slots=True)
class CompletionReply(Reply):
    """A completion. What a server does not give is None; `logprobs` belong to the tokens written."""

    token_ids: list[int] | None = None
    logprobs: list[float | None] | None = None
    first_top_logprobs: dict[str, float] | None = None
    echoed_logprobs: list[float | None] | None = None
    prompt_logprobs: list[dict[str, _Logprob] | None] | None = None
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A prompt, as token ids or as text, and what to do with it; `values` are the request's further parameters."""

    model: str
    prompt: list[int] | str
    max_tokens: int
    temperature: float
    values: dict[str, Any]

    @property
    def json_schema(self) -> None:
        """Labels are read, never parsed."""

    def path(self, config: EndpointConfig) -> str:
        """See `EndpointRequest.path`."""
        return "/completions"

    def body(self, config: EndpointConfig, *, send_schema: bool = True) -> dict[str, Any]:
        """The request as the completions API takes it."""
        standard = {"model": self.model, "prompt": self.prompt, "max_tokens": self.max_tokens, "temperature": self.temperature}
        return standard | self.values

    def tiny(self, config: EndpointConfig) -> "CompletionRequest":
        """See `EndpointRequest.tiny`."""
        return CompletionRequest(config.model, "Hi", 1, config.temperature, {})

    def likely_prompt_tokens(self) -> float:
        """Exact for token ids, four characters a token for text."""
        return len(self.prompt) / 4 if isinstance(self.prompt, str) else len(self.prompt)

    def parse(self, reply: Any, config: EndpointConfig, *, unseen_tries: int = 0) -> CompletionReply:
        """The API's JSON. Raises RefusedRequest when it holds no completion."""
        try:
            read = _Completion.model_validate(reply)
        except ValidationError as error:
            fault = error.errors()[0]
            raise RefusedRequest(f"the reply is no completion ({'.'.join(map(str, fault['loc']))}: {fault['msg']})") from None
        choice, usage, found = read.choices[0], read.usage or _Usage(), read.choices[0].logprobs or _Logprobs()
        echo = bool(self.values.get("echo"))
        return CompletionReply(
            text=choice.text,
            finish_reason=choice.finish_reason or "stop",
            request_id=read.id,
            num_prompt_tokens=usage.prompt_tokens,
            num_completion_tokens=usage.completion_tokens,
            model=read.model,
            max_tokens=config.max_tokens,
            unseen_tries=unseen_tries,
            token_ids=choice.token_ids,
            logprobs=None if echo else found.token_logprobs,
            first_top_logprobs=found.top_logprobs[0] if found.top_logprobs and not echo else None,
            echoed_logprobs=found.token_logprobs if echo else None,
            prompt_logprobs=choice.prompt_logprobs,
            num_cached_tokens=usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0,
        )


def label_requests(dialect: LabelReads, model: str, prompt: list[int] | str, labels: Sequence[int]) -> list[CompletionRequest]:
    """One request for all label tokens, or one for each."""
    match dialect:
        case "logprob_token_ids":
            values = [{"logprobs": len(labels), "logprob_token_ids": list(labels), "return_tokens_as_token_ids": True}]
        case "allowed_token_ids":
            values = [{"logprobs": 1, "allowed_token_ids": [label]} for label in labels]
        case "top_logprobs":
            values = [{"logprobs": _TOP, "logit_bias": {str(label): FORCED for label in labels}}]
    return [CompletionRequest(model, prompt, 1, 0.0, value) for value in values]


def label_logprobs(dialect: LabelReads, replies: Sequence[CompletionReply], labels: Sequence[int], tokenizer: Tokenizer) -> list[float]:
    """What the replies to `label_requests` give each label. Raises LLMError where one is missing."""
    if dialect == "allowed_token_ids":
        return whole([(reply.logprobs or [None])[0] for reply in replies], len(labels), replies[0])
    top = replies[0].first_top_logprobs or {}
    found = [next((top[name] for name in _names(label, tokenizer) if name in top), None) for label in labels]
    return whole(found, len(labels), replies[0])


def score_request(dialect: TextScores, model: str, token_ids: list[int]) -> CompletionRequest:
    """A request for the log-probability of every token of a prompt."""
    values = {"prompt_logprobs": 0} if dialect == "prompt_logprobs" else {"echo": True, "logprobs": 1}
    return CompletionRequest(model, token_ids, 1, 0.0, values)


def prompt_scores(dialect: TextScores, reply: CompletionReply, token_ids: Sequence[int]) -> list[float]:
    """The log-probability of each token but the first, which has none. Raises LLMError where one is missing."""
    if dialect == "echo":
        found = (reply.echoed_logprobs or [])[: len(token_ids)]
    else:
        entries = zip(reply.prompt_logprobs or [], token_ids, strict=False)
        found = [entry[str(token)].logprob if entry and str(token) in entry else None for entry, token in entries]
    return whole(found[1:], len(token_ids) - 1, reply)


def whole(logprobs: Sequence[float | None], number: int, reply: CompletionReply) -> list[float]:
    """So many log-probabilities. Raises LLMError where the server left some out: nothing may be scored by fewer."""
    found = [logprob for logprob in logprobs if logprob is not None and math.isfinite(logprob)]
    if len(logprobs) != number or len(found) != number:
        raise LLMError(f"endpoint model '{reply.model}' gave {len(found)} log-probabilities where {number} were asked for.")
    return found


def _names(token_id: int, tokenizer: Tokenizer) -> tuple[str, ...]:
    """What servers call a token in `top_logprobs`."""
    return f"token_id:{token_id}", tokenizer.decode([token_id]), tokenizer.convert_ids_to_tokens(token_id)
