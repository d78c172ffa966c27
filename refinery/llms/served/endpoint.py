"""What an endpoint is called: its configuration, what a request to it can do, a reply. `protocols/` says how a chat is put to it."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from pydantic import Field, ValidationInfo, field_validator

from refinery.contract.chat_template import AUTO
from refinery.errors import LLMError
from refinery.runtime.recipe import Recipe, secret_error


class Price(Recipe):
    """What a model costs, in US dollars per million tokens."""

    prompt: float = Field(ge=0)
    completion: float = Field(ge=0)


class EndpointConfig(Recipe):
    """An endpoint, or several that serve one model. The key is read from the environment and never written anywhere."""

    protocol: str = Field(
        default="openai_chat", description="how it is asked: a file of refinery/llms/served/protocols, or a module of your own"
    )
    base_url: str | list[str] | None = Field(
        default=None, description="where the endpoint is; None is the protocol's own provider, such as OpenAI; several share the load"
    )
    model: str = Field(description="model name as the endpoint knows it")
    api_key_env: str = Field(
        default="",
        description="environment variable that holds the key, an unset one sends no key; by default it is named after the protocol: "
        "OPENAI_API_KEY, ANTHROPIC_API_KEY",
        validate_default=True,
    )
    azure_api_version: str | None = Field(default=None, description="set for Azure OpenAI; base_url is then the resource's address")
    temperature: float = Field(default=0.0, description="RQ-RAG's curation uses 0")
    max_tokens: int = Field(default=500, description="RQ-RAG's curation uses 500", ge=1)
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="newer OpenAI models take the latter"
    )
    calls_in_flight: int = Field(default=64, description="requests open at once, at most; fewer where the endpoint refuses", ge=1)
    requests_per_minute: float | None = Field(default=None, description="None: only as the endpoint's refusals tell", gt=0)
    tokens_per_minute: float | None = Field(default=None, description="prompt and completion tokens", gt=0)
    max_tries: int = Field(
        default=5, description="tries per request for errors that may pass (5xx, connection); 429 and outages count as none", ge=1
    )
    timeout_seconds: float = Field(default=120.0, description="deadline of one try", gt=0)
    deadline_seconds: float = Field(
        default=600.0, description="of a request: its tries and the waits between, not its time in the queue or in an outage", gt=0
    )
    outage_patience_seconds: float = Field(
        default=600.0, description="how long a server that has answered may be away: the run pauses and probes it, then stops", ge=0
    )
    price: Price | None = Field(default=None, description="None: from the genai-prices table (extra `prices`), if it knows the model")

    @field_validator("base_url")
    @classmethod
    def _plain_address(cls, base_url: str | list[str] | None) -> str | list[str] | None:
        for url in [base_url] if isinstance(base_url, str) else base_url or []:
            if "@" in url or "?" in url:
                raise secret_error("holds user information or a query; put the key into the variable that api_key_env names.")
            if not url.startswith(("http://", "https://")):
                raise ValueError("an address starts with http:// or https://")
        return base_url

    @field_validator("api_key_env")
    @classmethod
    def _named_after_the_protocol(cls, name: str, info: ValidationInfo) -> str:
        module = str(info.data.get("protocol", "")).partition(":")[0].rpartition(".")[2]  # `gemini` of my_lab.gemini:PROTOCOL
        return name or f"{module.partition('_')[0].upper()}_API_KEY"

    @property
    def base_urls(self) -> list[str | None]:
        """The addresses as a list; None is the protocol's own provider."""
        return list(self.base_url) if isinstance(self.base_url, list) else [self.base_url]


# Of a model whose tokenizer is loaded here; one that is asked by chat applies its own.
CHAT_TEMPLATE: Any = Field(
    default=AUTO,
    description="how prompts are put to the model: auto is the tokenizer's own template where it has one; none; or a Jinja file",
)


class ServedModelConfig(EndpointConfig):
    """A model behind an endpoint that decoders use: asked by chat, or for completions of token ids."""

    tokenizer: str | None = Field(
        default=None,
        description="hub name or folder of the served model's tokenizer: the endpoint is asked for completions; None asks by chat",
    )
    chat_template: str = CHAT_TEMPLATE
    label_samples: int = Field(
        default=1, description="by chat: replies that a label is the share of; more than one needs a `temperature`", ge=1
    )
    adapters: dict[str, str] = Field(default={}, description="model names by role, as the endpoint serves its adapters; needs `tokenizer`")

    @field_validator("label_samples")
    @classmethod
    def _differ(cls, samples: int, info: ValidationInfo) -> int:
        if samples > 1 and not info.data.get("temperature"):
            raise ValueError("greedy replies are all alike; set a `temperature` above 0 too")
        if samples > 1 and info.data.get("tokenizer"):
            raise ValueError("labels are read of log-probabilities where `tokenizer` is named; leave one of the two out")
        return samples

    @field_validator("chat_template")
    @classmethod
    def _of_a_tokenizer(cls, choice: str, info: ValidationInfo) -> str:
        if choice != AUTO and info.data.get("tokenizer") is None:
            raise ValueError("by chat the endpoint applies its model's own template; name the model's `tokenizer` too")
        return choice

    @field_validator("adapters")
    @classmethod
    def _by_completions(cls, adapters: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if adapters and info.data.get("tokenizer") is None:
            raise ValueError("adapters are asked for completions; name the model's `tokenizer` too")
        return adapters


R = TypeVar("R", bound="Reply", covariant=True)


class EndpointRequest(Protocol[R]):
    """What an endpoint is asked, whichever of its routes takes it."""

    @property
    def json_schema(self) -> dict[str, Any] | None:
        """The schema of the reply, or None for plain text."""
        ...

    def path(self, config: EndpointConfig) -> str:
        """The route, as it is put after the endpoint's address."""
        ...

    def body(self, config: EndpointConfig, *, send_schema: bool = True) -> dict[str, Any]:
        """The request as its route takes it."""
        ...

    def tiny(self, config: EndpointConfig) -> "EndpointRequest[Any]":
        """A request to the same route that takes a token or two, for finding out whether anything answers."""
        ...

    def likely_prompt_tokens(self) -> float:
        """What the prompt is expected to count against a limit of tokens a minute."""
        ...

    def parse(self, reply: Any, config: EndpointConfig, *, unseen_tries: int = 0) -> R:
        """The route's JSON as a Reply. Raises RefusedRequest when it holds none."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """One chat reply: its text, why it ended, which model wrote it, and its tokens.

    `finish_reason` is `stop`, `length`, `content_filter` or `refusal`, or else the API's own word. `max_tokens` is the limit it was written
    under, `unseen_tries` how many tries were sent before it and never answered, which the endpoint may charge for. `reasoning` is what a
    reasoning model thought before `text`, as the server tells it or as it stands in the reply.
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

    def stored(self) -> list[Any]:
        """The fields in order, as a store keeps them: `Reply(*stored)` is this reply."""
        return [getattr(self, name) for name in self.__slots__]


class RefusedRequest(LLMError):
    """This one request has no reply (400, content filter, no answer to any try); others go through. `reason` says which kind."""

    def __init__(self, message: str, *, reason: str = "refused", unseen_tries: int = 0) -> None:
        super().__init__(message)
        self.reason, self.unseen_tries = reason, unseen_tries


class UnusableEndpoint(LLMError):
    """The endpoint, or a server of it, takes no requests; `unseen_tries` of this one were sent and never answered."""

    def __init__(self, message: str, *, unseen_tries: int = 0, status: int | None = None) -> None:
        super().__init__(message)
        self.unseen_tries, self.status = unseen_tries, status
