"""Requests to a /v1/completions route and their replies: written tokens, label probabilities, and log-probabilities of given text.

The latter two exist in several dialects (vLLM, SGLang, llama.cpp, OpenAI). All are defined here, so that the probe in `capabilities.py`
tests exactly the requests that `completions.py` sends.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from refinery.contract.tokenizer import Tokenizer
from refinery.errors import LLMError
from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest, Reply
from refinery.llms.served.parameters import with_extra
from refinery.llms.served.wire.lenient_json import cached_count, first_choice, token_count
from refinery.llms.served.wire.responses import finished, no_reply_in
from refinery.runtime.files.fingerprint import store_key

LabelReads = Literal["logprob_token_ids", "allowed_token_ids", "top_logprobs"]
TextScores = Literal["prompt_logprobs", "echo"]

# The most log-probabilities per position that OpenAI gives. Other servers allow more.
_TOP = 5
# OpenAI's largest logit bias, which makes the biased tokens the most likely.
FORCED = 100


class _Logprobs(BaseModel):
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Logprob(BaseModel):
    logprob: float


class _Choice(BaseModel):
    text: Annotated[str, BeforeValidator(lambda text: "" if text is None else text)]
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    prompt_logprobs: list[dict[str, _Logprob] | None] | None = None


def _object(value: Any) -> Any:
    """A value that is not an object counts as missing."""
    return value if isinstance(value, dict) else None


class _Completion(BaseModel):
    """The fields that are read from a reply. Servers may add others."""

    id: str = ""
    model: str = ""
    choices: list[_Choice] = Field(min_length=1)
    usage: Annotated[dict[str, Any] | None, BeforeValidator(_object)] = None


@dataclass(slots=True)
class CompletionReply(Reply):
    """A completion. Fields that a server does not give are None. `logprobs` are those of the written tokens."""

    token_ids: list[int] | None = None
    logprobs: list[float | None] | None = None
    first_top_logprobs: dict[str, float] | None = None
    echoed_logprobs: list[float | None] | None = None
    prompt_logprobs: list[dict[str, float] | None] | None = None

    @property
    def is_empty(self) -> bool:
        """See `Reply.is_empty`. Log-probabilities may be all that was asked for."""
        read = self.logprobs or self.first_top_logprobs or self.echoed_logprobs or self.prompt_logprobs
        return not (self.text.strip() or self.num_completion_tokens or self.token_ids or read)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A prompt, as token ids or as text, with the request's parameters in `values`. A store uses `own_key` as its key, if it is set."""

    model: str
    prompt: list[int] | str
    max_tokens: int
    temperature: float
    values: dict[str, Any]
    own_key: bytes = b""

    @property
    def key(self) -> bytes:
        """See `StoredRequest`."""
        content = [self.model, self.prompt, self.max_tokens, self.temperature, self.values]
        return self.own_key or store_key(json.dumps(content, sort_keys=True).encode())

    def keyed(self, key: bytes) -> Self:
        """See `StoredRequest.keyed`."""
        return replace(self, own_key=key)

    def read_stored(self, values: list[Any]) -> CompletionReply:
        """See `StoredRequest.read_stored`."""
        return CompletionReply.of_stored(values)

    def most_prompt_tokens(self) -> int:
        """The number of token ids, or of the text's bytes, because a token has at least one byte."""
        return len(self.prompt.encode()) if isinstance(self.prompt, str) else len(self.prompt)

    def most_tokens(self, config: EndpointConfig) -> int:
        """The most tokens of the reply."""
        return self.max_tokens

    @property
    def json_schema(self) -> None:
        """None, because completions are not parsed as JSON."""

    def path(self, config: EndpointConfig) -> str:
        """See `EndpointRequest.path`."""
        return "/completions"

    def body(self, config: EndpointConfig, *, send_schema: bool = True) -> dict[str, Any]:
        """The request's body in the completions API."""
        standard = {"model": self.model, "prompt": self.prompt, "max_tokens": self.max_tokens, "temperature": self.temperature}
        asked = {} if config.top_p is None else {"top_p": config.top_p}
        return with_extra(standard | asked | self.values, config.extra_body)

    def tiny(self, config: EndpointConfig) -> "CompletionRequest":
        """See `EndpointRequest.tiny`."""
        return CompletionRequest(config.model, "Hi", 1, config.temperature, {})

    def likely_prompt_tokens(self) -> float:
        """The number of token ids, or an estimate of four characters per token for text."""
        return len(self.prompt) / 4 if isinstance(self.prompt, str) else len(self.prompt)

    def parse(self, reply: Any, config: EndpointConfig, *, unseen_tries: int = 0) -> CompletionReply:
        """The API's JSON as a Completion. Raises RefusedRequest for another form, RetryableFault for a reply without a completion."""
        if first_choice(reply) is None:
            raise no_reply_in("the reply has no choices")
        try:
            read = _Completion.model_validate(reply)
        except ValidationError as error:
            fault = error.errors()[0]
            raise RefusedRequest(f"the reply is not a completion ({'.'.join(map(str, fault['loc']))}: {fault['msg']})") from None
        choice, usage, found = read.choices[0], read.usage or {}, read.choices[0].logprobs or _Logprobs()
        echo = bool(self.values.get("echo"))
        completion = CompletionReply(
            text=choice.text,
            finish_reason=choice.finish_reason or "stop",
            request_id=read.id,
            num_prompt_tokens=token_count(usage.get("prompt_tokens")),
            num_completion_tokens=token_count(usage.get("completion_tokens")),
            model=read.model,
            max_tokens=config.max_tokens,
            unseen_tries=unseen_tries,
            token_ids=choice.token_ids,
            logprobs=None if echo else found.token_logprobs,
            first_top_logprobs=found.top_logprobs[0] if found.top_logprobs and not echo else None,
            echoed_logprobs=found.token_logprobs if echo else None,
            prompt_logprobs=_plain(choice.prompt_logprobs),
            num_cached_tokens=cached_count(usage),
        )
        return finished(completion)


def _plain(prompt_logprobs: list[dict[str, _Logprob] | None] | None) -> list[dict[str, float] | None] | None:
    if prompt_logprobs is None:
        return None
    return [{token: found.logprob for token, found in entry.items()} if entry else None for entry in prompt_logprobs]


def label_requests(dialect: LabelReads, model: str, prompt: list[int] | str, labels: Sequence[int]) -> list[CompletionRequest]:
    """One request for all label tokens, or one for each token, depending on the dialect."""
    match dialect:
        case "logprob_token_ids":
            values = [label_values(labels)]
        case "allowed_token_ids":
            values = [{"logprobs": 1, "allowed_token_ids": [label]} for label in labels]
        case "top_logprobs":
            values = [{"logprobs": _TOP, "logit_bias": {str(label): FORCED for label in labels}}]
    return [CompletionRequest(model, prompt, 1, 0.0, value) for value in values]


def label_values(labels: Sequence[int]) -> dict[str, Any]:
    """The parameters for reading labels at every written token, in the dialect `logprob_token_ids`."""
    return {"logprobs": len(labels), "logprob_token_ids": list(labels), "return_tokens_as_token_ids": True}


def label_logprobs(dialect: LabelReads, replies: Sequence[CompletionReply], labels: Sequence[int], tokenizer: Tokenizer) -> list[float]:
    """Each label's log-probability in the replies to `label_requests`. Raises LLMError when one is missing."""
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
    """The log-probability of each token after the first, which has none. Raises LLMError when one is missing."""
    if dialect == "echo":
        found = (reply.echoed_logprobs or [])[: len(token_ids)]
    else:
        entries = zip(reply.prompt_logprobs or [], token_ids, strict=False)
        found = [entry[str(token)] if entry and str(token) in entry else None for entry, token in entries]
    return whole(found[1:], len(token_ids) - 1, reply)


def whole(logprobs: Sequence[float | None], number: int, reply: CompletionReply) -> list[float]:
    """The log-probabilities, after a check of their number. Raises LLMError when some are missing, since scores need all of them."""
    found = [logprob for logprob in logprobs if logprob is not None and math.isfinite(logprob)]
    if len(logprobs) != number or len(found) != number:
        raise LLMError(f"endpoint model '{reply.model}' gave {len(found)} log-probabilities instead of {number}.")
    return found


def _names(token_id: int, tokenizer: Tokenizer) -> tuple[str, ...]:
    """A token's names in servers' `top_logprobs`."""
    return f"token_id:{token_id}", tokenizer.decode([token_id]), tokenizer.convert_ids_to_tokens(token_id)
