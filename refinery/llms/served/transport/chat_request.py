"""A chat as a request to an endpoint, for any protocol."""

import json
from dataclasses import dataclass, replace
from typing import Any

from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest, Reply
from refinery.llms.served.parameters import with_extra
from refinery.llms.served.protocols.base import Chat, ChatProtocol, protocol_of
from refinery.llms.served.transport.chat_labels import value_probability
from refinery.llms.served.wire.event_stream import EventStream
from refinery.llms.served.wire.responses import finished, no_reply_in


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One chat: its messages and the JSON schema of the reply (None for plain text). `key` identifies it in a reply store.

    `rollout` numbers the samples of one chat. With a `label_field`, the reply has the probability of that field's value.
    """

    key: bytes
    messages: tuple[tuple[str, str], ...]  # (role, content)
    json_schema: dict[str, Any] | None = None
    rollout: int = 0
    label_field: str | None = None

    def path(self, config: EndpointConfig) -> str:
        """See `EndpointRequest.path`."""
        return protocol_of(config).path

    def chat(self, config: EndpointConfig) -> Chat:
        """The request, with the limits of the endpoint's configuration."""
        seed = None if config.seed is None else config.seed + self.rollout
        return Chat(
            self.messages,
            self.most_tokens(config),
            config.temperature,
            json_schema=self.json_schema,
            seed=seed,
            token_logprobs=self.label_field is not None,
        )

    def body(self, config: EndpointConfig, *, send_schema: bool = True) -> dict[str, Any]:
        """The request's body in the endpoint's protocol. A schema that the protocol does not send is written into the prompt."""
        protocol, chat = protocol_of(config), self.chat(config)
        if chat.json_schema is not None and not (send_schema and protocol.takes_schemas):
            chat = replace(chat, messages=_with_schema(chat.messages, chat.json_schema), json_schema=None)
        body = protocol.body(chat, config)
        return with_extra(body, config.extra_body) if config.extra_body else body

    def tiny(self, config: EndpointConfig) -> "ChatRequest":
        """See `EndpointRequest.tiny`."""
        return TINY_CHAT

    def most_prompt_tokens(self) -> int:
        """An upper bound of the prompt's tokens: a token is at least one byte, and each message adds a few."""
        schema = len(json.dumps(self.json_schema)) + 100 if self.json_schema else 0
        return sum(len(content.encode()) + 16 for _, content in self.messages) + schema

    def most_tokens(self, config: EndpointConfig) -> int:
        """The most tokens of a reply and of the reasoning before it."""
        return config.most_tokens

    def likely_prompt_tokens(self) -> float:
        """An estimate of about four characters per token."""
        return self.most_prompt_tokens() / 4

    def parse(self, reply: Any, config: EndpointConfig, *, unseen_tries: int = 0) -> Reply:
        """See `parse_chat`."""
        parsed, token_logprobs = parse_chat(reply, config, unseen_tries=unseen_tries), protocol_of(config).token_logprobs
        if self.label_field is None or token_logprobs is None:
            return parsed
        return replace(parsed, label_probability=value_probability(self.label_field, token_logprobs(reply)))


class _TinyChat(ChatRequest):
    def chat(self, config: EndpointConfig) -> Chat:
        return Chat(self.messages, 1, config.temperature)


TINY_CHAT = _TinyChat(b"", (("user", "Hi"),))


def parse_chat(reply: Any, config: EndpointConfig, *, unseen_tries: int = 0) -> Reply:
    """The JSON of the endpoint's protocol as a Reply. Raises RefusedRequest when it holds none, or another form than the protocol reads.

    A stream is joined first. Raises RetryableFault if its end is missing, and for a reply that is empty or that the server gave up.
    """
    protocol = protocol_of(config)
    try:
        parsed = protocol.parse(_joined(reply, protocol) if isinstance(reply, EventStream) else reply)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise RefusedRequest(f"protocol '{config.protocol}' cannot read the reply ({type(error).__name__}: {error})") from None
    return replace(finished(parsed), max_tokens=config.most_tokens, unseen_tries=unseen_tries)


def _joined(events: EventStream, protocol: ChatProtocol) -> Any:
    """What the protocol's server would have sent at once. Raises RetryableFault."""
    whole = protocol.join(events) if protocol.join else None
    if whole is None:
        raise no_reply_in(f"the server streams its reply, and the stream has no end ({len(events)} events)")
    return whole


def _with_schema(messages: tuple[tuple[str, str], ...], schema: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    *before, (role, content) = messages
    return *before, (role, f"{content}\n\nReply with one JSON object of this schema and nothing else:\n{json.dumps(schema)}")
