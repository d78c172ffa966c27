"""An endpoint's configuration, the interface of a request to it, and its reply. `protocols/` defines how a chat is sent."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Protocol, Self, TypeVar

from pydantic import Field, ValidationInfo, field_validator

from refinery.contract.chat_template import AUTO
from refinery.errors import LLMError
from refinery.llms.served.parameters import ModelParameters
from refinery.runtime.recipe import Recipe, secret_error


class Price(Recipe):
    """What a model costs, in US dollars per million tokens."""

    prompt: float = Field(description="of prompt tokens", ge=0)
    completion: float = Field(description="of completion tokens", ge=0)
    cached: float | None = Field(default=None, description="of prompt tokens that a cache had; None: as other prompt tokens", ge=0)
    cache_write: float | None = Field(default=None, description="of those that were written to one; None: as other prompt tokens", ge=0)


def check_addresses(base_url: str | list[str] | None) -> None:
    """Raise ValueError for an address that is none, or that may contain a secret."""
    for url in [base_url] if isinstance(base_url, str) else base_url or []:
        if "@" in url or "?" in url:
            raise secret_error("contains user information or a query; put the key into the variable that api_key_env names.")
        if not url.startswith(("http://", "https://")):
            raise ValueError("an address must start with http:// or https://")


_ROUTE = re.compile(r"/(?:chat/completions|completions|responses|messages)/*$")


class EndpointConfig(ModelParameters):
    """An endpoint, or several that serve one model. The key is read from the environment and never stored."""

    protocol: str = Field(
        default="openai_chat", description="the chat protocol: a file of refinery/llms/served/protocols, or your own module"
    )
    base_url: str | list[str] | None = Field(
        default=None, description="the endpoint's address; None means the protocol's provider, such as OpenAI; several share the load"
    )
    model: str = Field(description="the endpoint's name for the model")
    api_key_env: str = Field(
        default="",
        description="environment variable that holds the key; if it is unset, no key is sent; by default it is named after the protocol: "
        "OPENAI_API_KEY, ANTHROPIC_API_KEY",
        validate_default=True,
    )
    azure_api_version: str | None = Field(default=None, description="for Azure OpenAI, with the resource's address as base_url")
    calls_in_flight: int = Field(default=64, description="most concurrent requests; fewer are sent when the endpoint refuses some", ge=1)
    requests_per_minute: float | None = Field(default=None, description="None: limited only by the endpoint's refusals", gt=0)
    tokens_per_minute: float | None = Field(default=None, description="prompt and completion tokens", gt=0)
    max_tries: int = Field(
        default=5, description="tries per request for transient errors (5xx, connection); 429 and outages do not count", ge=1
    )
    timeout_seconds: float = Field(default=120.0, description="time limit of one try", gt=0)
    deadline_seconds: float = Field(
        default=600.0,
        description="time limit of a request's tries and the waits between them, without its time in the queue or in outages",
        gt=0,
    )
    outage_patience_seconds: float = Field(
        default=600.0, description="how long a server that has answered before may be out; the run pauses, probes it, and then stops", ge=0
    )
    price: Price | None = Field(default=None, description="None: taken from the genai-prices table (extra `prices`) if it has the model")

    @field_validator("base_url")
    @classmethod
    def _plain_address(cls, base_url: str | list[str] | None) -> str | list[str] | None:
        check_addresses(base_url)
        return base_url

    @field_validator("api_key_env")
    @classmethod
    def _named_after_the_protocol(cls, name: str, info: ValidationInfo) -> str:
        module = str(info.data.get("protocol", "")).partition(":")[0].rpartition(".")[2]  # `gemini` of my_lab.gemini:PROTOCOL
        return name or f"{module.partition('_')[0].upper()}_API_KEY"

    @property
    def base_urls(self) -> list[str | None]:
        """The addresses, where None means the protocol's provider, without the route that pages of providers show at their end."""
        named = self.base_url if isinstance(self.base_url, list) else [self.base_url]
        return [address and _ROUTE.sub("", address) for address in named]


# Only for a model whose tokenizer is loaded here; a chat endpoint applies its own template.
CHAT_TEMPLATE: Any = Field(
    default=AUTO,
    description="the model's chat template: auto (the tokenizer's own, if it has one), none, or a Jinja file",
)


class ServedModelConfig(EndpointConfig):
    """A model behind an endpoint for decoders, used by chat or for completions of token ids."""

    tokenizer: str | None = Field(
        default=None,
        description="hub name or folder of the served model's tokenizer, to use completions; None uses chat",
    )
    chat_template: str = CHAT_TEMPLATE
    label_samples: int = Field(
        default=1,
        description="by chat, the number of replies whose mean gives a label's probability; more than one needs a `temperature`",
        ge=1,
    )
    adapters: dict[str, str] = Field(default={}, description="the endpoint's model names of adapters, by role; needs `tokenizer`")

    @field_validator("label_samples")
    @classmethod
    def _differ(cls, samples: int, info: ValidationInfo) -> int:
        if samples > 1 and not info.data.get("temperature"):
            raise ValueError("greedy replies are all the same; also set a `temperature` above 0")
        if samples > 1 and info.data.get("tokenizer"):
            raise ValueError("with a `tokenizer`, labels are read from log-probabilities; leave out one of the two")
        if samples > 1 and info.data.get("seed") is not None:
            raise ValueError("replies with one `seed` are all the same; leave it out")
        return samples

    @field_validator("chat_template")
    @classmethod
    def _of_a_tokenizer(cls, choice: str, info: ValidationInfo) -> str:
        if choice != AUTO and info.data.get("tokenizer") is None:
            raise ValueError("a chat endpoint applies its model's own template; also name the model's `tokenizer`")
        return choice

    @field_validator("adapters")
    @classmethod
    def _by_completions(cls, adapters: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if adapters and info.data.get("tokenizer") is None:
            raise ValueError("adapters need completions; also name the model's `tokenizer`")
        return adapters


R = TypeVar("R", bound="Reply", covariant=True)


class EndpointRequest(Protocol[R]):
    """A request to any route of an endpoint."""

    @property
    def json_schema(self) -> dict[str, Any] | None:
        """The schema of the reply, or None for plain text."""
        ...

    def path(self, config: EndpointConfig) -> str:
        """The route's path, relative to the endpoint's address."""
        ...

    def body(self, config: EndpointConfig, *, send_schema: bool = True) -> dict[str, Any]:
        """The request's body."""
        ...

    def tiny(self, config: EndpointConfig) -> "EndpointRequest[Any]":
        """A request to the same route that costs a token or two, to find out whether the server answers."""
        ...

    def likely_prompt_tokens(self) -> float:
        """The prompt's expected tokens, for a limit of tokens per minute."""
        ...

    def parse(self, reply: Any, config: EndpointConfig, *, unseen_tries: int = 0) -> R:
        """The route's JSON as a Reply. Raises RefusedRequest when it contains no reply."""
        ...


# The `finish_reason` of replies that a filter or the model itself withholds.
WITHHELD = ("content_filter", "refusal")


@dataclass(slots=True)  # never changed; but a frozen one takes over twice as long to make, and a replay makes one for each row
class Reply:
    """One chat reply: its text, why it ended, which model wrote it, and its tokens.

    `finish_reason` is `stop`, `length`, `content_filter`, `refusal` or `tool_calls`; a protocol may give it in its API's own word.
    `max_tokens` is the request's limit.
    `unseen_tries` is the number of earlier tries that got no answer but may be charged. `reasoning` is what a reasoning model wrote before
    `text`, from a separate field or from the reply itself; `num_reasoning_tokens` of the completion's tokens are its, if the server counts
    them. `label_probability` is what the model gave the label that it wrote, if the request wanted to know and the server tells.
    `num_cached_tokens` of the prompt's tokens were read from the provider's cache, `num_cache_write_tokens` written to it.

    A field that is added later is for keywords only: it comes last in a store, where older replies do not have it.
    """

    text: str
    finish_reason: str
    request_id: str
    num_prompt_tokens: int
    num_completion_tokens: int
    model: str = ""
    max_tokens: int = 0
    unseen_tries: int = 0
    reasoning: str = ""
    num_reasoning_tokens: int = 0
    label_probability: float | None = None
    num_cached_tokens: int = field(default=0, kw_only=True)
    num_cache_write_tokens: int = field(default=0, kw_only=True)

    @property
    def is_empty(self) -> bool:
        """Whether the model has written nothing, not even one token without a text."""
        return not (self.text.strip() or self.reasoning or self.num_completion_tokens or self.num_reasoning_tokens)

    def stored(self) -> list[Any]:
        """The fields in order, for a store."""
        return [getattr(self, name) for name in _stored_fields(type(self))]

    @classmethod
    def of_stored(cls, values: Sequence[Any]) -> Self:
        """The reply that `stored` gave, maybe before its last fields were added."""
        return cls(**dict(zip(_stored_fields(cls), values, strict=False)))


@cache
def _stored_fields(kind: type[Reply]) -> tuple[str, ...]:
    return tuple(one.name for one in sorted(fields(kind), key=lambda one: bool(one.kw_only)))


class RefusedRequest(LLMError):
    """A request without a reply (400, content filter, no answer to any try), while others succeed. `reason` says which kind it is.

    It is not `certain` where the server may refuse every other request too.
    """

    def __init__(self, message: str, *, reason: str = "refused", unseen_tries: int = 0, certain: bool = True) -> None:
        super().__init__(message)
        self.reason, self.unseen_tries, self.certain = reason, unseen_tries, certain


class UnusableEndpoint(LLMError):
    """The endpoint or one of its servers refuses all requests. `unseen_tries` of this request were sent but not answered."""

    def __init__(self, message: str, *, unseen_tries: int = 0, status: int | None = None) -> None:
        super().__init__(message)
        self.unseen_tries, self.status = unseen_tries, status
