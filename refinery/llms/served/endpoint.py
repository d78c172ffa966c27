"""What an OpenAI-compatible endpoint is called and how it is spoken to: its configuration, a request, a reply."""

import json
import os
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from pydantic import Field, ValidationInfo, field_validator

from refinery.contract.chat_template import AUTO
from refinery.errors import LLMError
from refinery.llms.served.wire import content_text, first_choice, token_count, whole_text
from refinery.llms.thinking import split_thinking
from refinery.runtime.recipe import Recipe, secret_error


class Price(Recipe):
    """What a model costs, in US dollars per million tokens."""

    prompt: float = Field(ge=0)
    completion: float = Field(ge=0)


class EndpointConfig(Recipe):
    """An OpenAI-compatible endpoint, or several that serve one model. The key is read from the environment and never written anywhere."""

    base_url: str | list[str] | None = Field(
        default=None, description="where the endpoint is; None is OpenAI itself; several share the load"
    )
    model: str = Field(description="model name as the endpoint knows it")
    api_key_env: str = Field(default="OPENAI_API_KEY", description="environment variable that holds the key; unset sends no key")
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

    @property
    def base_urls(self) -> list[str | None]:
        """The addresses as a list; None is OpenAI itself."""
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

    path: ClassVar[str]

    @property
    def json_schema(self) -> dict[str, Any] | None:
        """The schema of the reply, or None for plain text."""
        ...

    def body(self, config: EndpointConfig, *, send_schema: bool = True) -> dict[str, Any]:
        """The request as its route takes it."""
        ...

    def likely_prompt_tokens(self) -> float:
        """What the prompt is expected to count against a limit of tokens a minute."""
        ...

    def parse(self, reply: Any, *, max_tokens: int, unseen_tries: int) -> R:
        """The route's JSON as a Reply. Raises RefusedRequest when it holds none."""
        ...


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One chat: its messages, and the JSON schema of the reply (None for plain text). `key` names it in a reply store."""

    path: ClassVar[str] = "/chat/completions"
    key: bytes
    messages: tuple[tuple[str, str], ...]  # (role, content)
    json_schema: dict[str, Any] | None = None

    def body(self, config: EndpointConfig, *, send_schema: bool = True) -> dict[str, Any]:
        """The request as the chat API takes it."""
        body: dict[str, Any] = {
            "model": config.model,
            "messages": [{"role": role, "content": content} for role, content in self.messages],
            "temperature": config.temperature,
            config.max_tokens_name: config.max_tokens,
        }
        if self.json_schema is not None and send_schema:
            schema = {"name": self.json_schema.get("title", "reply"), "schema": self.json_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif self.json_schema is not None:
            recipe = f"\n\nReply with one JSON object of this schema and nothing else:\n{json.dumps(self.json_schema)}"
            body["messages"][-1]["content"] += recipe
        return body

    def most_prompt_tokens(self) -> int:
        """More tokens than the prompt can have: a token is a byte at least, and a message's frame a handful."""
        schema = len(json.dumps(self.json_schema)) + 100 if self.json_schema else 0
        return sum(len(content.encode()) + 16 for _, content in self.messages) + schema

    def likely_prompt_tokens(self) -> float:
        """Four characters a token, roughly."""
        return self.most_prompt_tokens() / 4

    def parse(self, reply: Any, *, max_tokens: int, unseen_tries: int) -> "Reply":
        """See `parse_completion`."""
        return parse_completion(reply, max_tokens=max_tokens, unseen_tries=unseen_tries)


@dataclass(frozen=True, slots=True)
class Reply:
    """One chat reply: its text, why it ended, which model wrote it, and its tokens.

    `finish_reason` is the API's (`stop`, `length`, `content_filter`) or `refusal`. `max_tokens` is the limit it was written under,
    `unseen_tries` how many tries were sent before it and never answered, which the endpoint may charge for. `reasoning` is what a
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


def parse_completion(completion: Any, *, max_tokens: int, unseen_tries: int = 0) -> Reply:
    """The API's JSON as a Reply, read leniently. Raises RefusedRequest when it holds none."""
    choice = first_choice(completion)
    if choice is None:
        raise RefusedRequest("the reply has no choices")
    message, usage = choice.get("message") or {}, completion.get("usage")
    message = message if isinstance(message, dict) else {"content": message}
    usage = usage if isinstance(usage, dict) else {}
    try:
        refusal, content = content_text(message.get("refusal")), content_text(message.get("content"))
        told = content_text(message.get("reasoning_content") or message.get("reasoning"))
    except ValueError as error:
        raise RefusedRequest(f"the reply has no text: {error}") from None
    thought, content = split_thinking(content)
    return Reply(
        text=content or refusal,
        finish_reason="refusal" if refusal else whole_text(str(choice.get("finish_reason") or "stop")),
        request_id=whole_text(str(completion.get("id", ""))),
        num_prompt_tokens=token_count(usage.get("prompt_tokens")),
        num_completion_tokens=token_count(usage.get("completion_tokens")),
        model=whole_text(str(completion.get("model", ""))),
        max_tokens=max_tokens,
        unseen_tries=unseen_tries,
        reasoning=told or thought,
    )


def openai_client(config: EndpointConfig, base_url: str | None, *, max_retries: int = 0) -> Any:
    """The official client for one address: it knows keys, organisations and Azure."""
    from openai import AsyncAzureOpenAI, AsyncOpenAI, DefaultAsyncHttpxClient

    key = os.environ.get(config.api_key_env, "").strip() or "none"
    http_client = DefaultAsyncHttpxClient(follow_redirects=False)  # the key and the prompts go to no other address
    if config.azure_api_version:
        return AsyncAzureOpenAI(
            azure_endpoint=base_url or "",
            azure_deployment=config.model,
            api_version=config.azure_api_version,
            api_key=key,
            max_retries=max_retries,
            http_client=http_client,
        )
    return AsyncOpenAI(base_url=base_url, api_key=key, max_retries=max_retries, http_client=http_client)


def server_address(config: EndpointConfig, base_url: str | None) -> tuple[str, str, dict[str, str]]:
    """What stands before and after a route's path in the address of its requests, and the headers that carry the key."""
    client = openai_client(config, base_url)
    base = str(client.base_url).rstrip("/")
    if config.azure_api_version:
        return base, f"?api-version={config.azure_api_version}", {"api-key": client.api_key, "Content-Type": "application/json"}
    extra = {name: value for name, value in client.default_headers.items() if isinstance(value, str) and name.startswith("OpenAI-")}
    return base, "", {"Content-Type": "application/json", **client.auth_headers, **extra}
