"""The recipe keys that shape a model's replies. A protocol sends them; those that are set are part of a reply's key in a store."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, JsonValue, field_validator

from refinery.runtime.recipe import Recipe

# Keys of a request that come from the recipe's own keys, or that would change what a reply is.
_NOT_EXTRA = frozenset(
    (
        "model",
        "messages",
        "input",
        "instructions",
        "system",
        "prompt",
        "stream",
        "stream_options",
        "n",
        "stop",
        "stop_sequences",
        "response_format",
        "logprobs",
        "top_logprobs",
    )
)
_OWN_KEYS = {"max_completion_tokens": "max_tokens", "max_output_tokens": "max_tokens"}


class ModelParameters(Recipe):
    """The parameters of a model behind an endpoint."""

    temperature: float = Field(
        default=0.0,
        description="sampling temperature; RQ-RAG's curation uses 0; left out where the model refuses it, as reasoning models do",
    )
    max_tokens: int = Field(default=500, description="most tokens of a reply; RQ-RAG's curation uses 500", ge=1)
    reasoning_tokens: int = Field(
        default=0,
        description="tokens added to `max_tokens` for what a reasoning model thinks before its reply, such as 4000; paid like the reply's",
        ge=0,
    )
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="the limit's name in chat completions; the other one is found out where a model refuses this one"
    )
    top_p: float | None = Field(default=None, description="nucleus sampling; None: the model's default", gt=0, le=1)
    seed: int | None = Field(
        default=None, description="for sampling, where the server takes one; the k-th sample of a request gets this number plus k"
    )
    reasoning_effort: str | None = Field(
        default=None,
        description="how long a reasoning model thinks, in its provider's words: none, minimal, low, medium, high, xhigh, max",
        pattern=r"^[a-z_]+$",
    )
    enable_thinking: bool | None = Field(
        default=None,
        description="switches reasoning on or off where the server's chat template can (vLLM, SGLang, llama.cpp), or for Claude",
    )
    extra_body: dict[str, JsonValue] = Field(
        default={}, description="more keys of each request, as the server's documentation names them; merged into objects of the same key"
    )

    @field_validator("extra_body")
    @classmethod
    def _only_extra(cls, extra: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name in extra:
            if own := _OWN_KEYS.get(name, name if name in ModelParameters.model_fields else None):
                raise ValueError(f"'{name}' has a key of its own; set `{own}` instead")
            if name in _NOT_EXTRA:
                raise ValueError(f"'{name}' is set by each request; leave it out")
        return extra

    @property
    def most_tokens(self) -> int:
        """The most tokens of a reply and of the reasoning before it."""
        return self.max_tokens + self.reasoning_tokens

    def optional(self) -> dict[str, Any]:
        """The parameters that are sent only if the recipe sets them, and that it sets, by key."""
        values = {name: getattr(self, name) for name in ("top_p", "seed", "reasoning_effort", "enable_thinking", "extra_body")}
        return {name: value for name, value in values.items() if value not in (None, {})}


def with_extra(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body with the keys of `extra_body`; objects that both have are merged."""
    merged = dict(body)
    for name, value in extra.items():
        before = merged.get(name)
        merged[name] = with_extra(before, value) if isinstance(before, dict) and isinstance(value, Mapping) else value
    return merged
