"""What a chat protocol declares, and how it is found by its name.

A protocol is one file with a `PROTOCOL`; `protocol: my_lab.gemini` in a recipe's teacher or endpoint finds it outside this project too:

    def address(config, base_url):
        return Address(base_url or "https://generativelanguage.googleapis.com/v1", headers={"x-goog-api-key": api_key(config)})

    def body(chat, config):
        return {"contents": ...}

    def parse(reply):
        return Reply(text=..., finish_reason="stop", request_id=..., num_prompt_tokens=..., num_completion_tokens=...)

    PROTOCOL = ChatProtocol("/interactions", address, body, parse)

Tries, limits, outages, money and the reply store are the same for every protocol, and so are errors: a status and, in the JSON, an `error`.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from refinery.llms.served.endpoint import EndpointConfig, Reply
from refinery.runtime import plugins
from refinery.runtime.plugins import PluginKind

FirstLogprobs = tuple[tuple[str, float], ...]  # what a reply's first token could have been, with the log-probability of each


@dataclass(frozen=True, slots=True)
class Chat:
    """What a model is asked, in no API's words. `json_schema` is set only where the protocol takes one apart from the messages."""

    messages: tuple[tuple[str, str], ...]  # (role, content); a role is system, user or assistant
    max_tokens: int
    temperature: float
    stop: tuple[str, ...] = ()
    json_schema: dict[str, Any] | None = None
    first_logprobs: bool = False  # whether the first token's alternatives are asked for


@dataclass(frozen=True, slots=True)
class Address:
    """Where an endpoint's requests go: `base`, then the route's path, then `query`; the headers carry the key."""

    base: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChatProtocol:
    """How a server is asked by chat.

    `address(config, base_url)` is where it is, or where the provider is for the base_url None. `body(chat, config)` is the JSON that is
    posted to `path`. `parse(json)` is the reply; it raises RefusedRequest where the JSON holds none.

    `provider` and its `host` are for prices, and for the keys of stored replies. `takes_schemas`: the body has a place for the reply's JSON
    schema, which is otherwise put into the prompt. `first_logprobs(json)` reads what the first token could have been. `openai_routes`: its
    servers may have OpenAI's other routes as well, for completions, Batch jobs and Azure.
    """

    path: str
    address: Callable[[EndpointConfig, str | None], Address]
    body: Callable[[Chat, EndpointConfig], dict[str, Any]]
    parse: Callable[[Any], Reply]
    provider: str = ""
    host: str = ""
    takes_schemas: bool = False
    first_logprobs: Callable[[Any], FirstLogprobs | None] | None = None
    openai_routes: bool = False


PROTOCOLS = PluginKind("protocol", "refinery.llms.served.protocols", ChatProtocol, "PROTOCOL")


def protocol_of(config: EndpointConfig) -> ChatProtocol:
    """How the configured endpoint is asked. Raises PluginError for an unknown protocol, or a wrong one."""
    with config.at("protocol"):
        return _find_protocol(config.protocol)


@cache
def _find_protocol(name: str) -> ChatProtocol:
    return plugins.find(PROTOCOLS, name)


def check_protocol(config: EndpointConfig) -> None:
    """Raises PluginError for a protocol that is not found, RecipeError for a key that it has no use for."""
    protocol = protocol_of(config)
    for key in ("tokenizer", "azure_api_version"):
        if getattr(config, key, None) and not protocol.openai_routes:
            raise config.fault(key, f"has no use with protocol '{config.protocol}', which has none of OpenAI's other routes. Leave it out.")


def api_key(config: EndpointConfig) -> str:
    """The key, from the environment; empty where it is not set."""
    return os.environ.get(config.api_key_env, "").strip()
