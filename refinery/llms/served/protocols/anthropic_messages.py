"""Anthropic's Messages API (https://docs.claude.com/en/api/messages), for Anthropic and compatible gateways and servers.

Differences from OpenAI's chat: the system prompt is a separate field, `max_tokens` is required, the key goes into `x-api-key` and the
version into `anthropic-version`, a reply is a list of blocks, and there are no log-probabilities, so labels are read from words.
"""

import json
from typing import Any

from refinery.llms.served.endpoint import EndpointConfig, Reply
from refinery.llms.served.protocols.base import Address, Chat, ChatProtocol, api_key
from refinery.llms.served.wire.event_stream import EventStream
from refinery.llms.served.wire.lenient_json import token_count, whole_text
from refinery.llms.served.wire.responses import no_reply_in

_HOST = "api.anthropic.com"
_VERSION = "2023-06-01"
# Tokens read from a cache or written to it are part of the prompt too.
_CACHED, _CACHE_WRITE = "cache_read_input_tokens", "cache_creation_input_tokens"
_PROMPT_TOKENS = ("input_tokens", _CACHE_WRITE, _CACHED)


def _address(config: EndpointConfig, base_url: str | None) -> Address:
    """Accepts addresses with /v1, as for OpenAI's client, and without it, as for Anthropic's."""
    base = (base_url or f"https://{_HOST}").rstrip("/").removesuffix("/v1")
    key = {"x-api-key": key} if (key := api_key(config)) else {}
    return Address(f"{base}/v1", headers={"anthropic-version": _VERSION, **key})


def _body(chat: Chat, config: EndpointConfig) -> dict[str, Any]:
    system = "\n\n".join(content for role, content in chat.messages if role == "system")
    # Anthropic refuses turns without text and stop texts of white space; the latter cut the reply when it is read.
    turns = [{"role": role, "content": content} for role, content in chat.messages if role != "system" and content.strip()]
    stop = [text for text in chat.stop if text.strip()]
    body: dict[str, Any] = {
        "model": config.model,
        "max_tokens": chat.max_tokens,
        "messages": turns,
        **_parameters(chat, config),
    }
    return body | ({"system": system} if system else {}) | ({"stop_sequences": stop} if stop else {})


def _parameters(chat: Chat, config: EndpointConfig) -> dict[str, Any]:
    """Sampling and reasoning parameters. The temperature is left out when the model thinks, because it accepts only the default."""
    values: dict[str, Any] = {} if config.enable_thinking else {"temperature": chat.temperature}
    if config.top_p is not None:
        values["top_p"] = config.top_p
    if config.enable_thinking is not None:
        values["thinking"] = {"type": "adaptive" if config.enable_thinking else "disabled"}
    if config.reasoning_effort is not None:
        values["output_config"] = {"effort": config.reasoning_effort}
    return values


def _parse(message: Any) -> Reply:
    blocks = message.get("content") if isinstance(message, dict) else None
    if not isinstance(blocks, list):
        raise no_reply_in("the reply has no content")
    usage = message.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return Reply(
        text=_texts(blocks, "text") or _tool_input(blocks),
        finish_reason=whole_text(str(message.get("stop_reason") or "end_turn")),
        request_id=whole_text(str(message.get("id", ""))),
        num_prompt_tokens=sum(token_count(usage.get(name)) for name in _PROMPT_TOKENS),
        num_completion_tokens=token_count(usage.get("output_tokens")),
        model=whole_text(str(message.get("model", ""))),
        reasoning=_texts(blocks, "thinking"),
        num_cached_tokens=token_count(usage.get(_CACHED)),
        num_cache_write_tokens=token_count(usage.get(_CACHE_WRITE)),
    )


def _texts(blocks: list[Any], kind: str) -> str:
    """The text of the blocks of one kind, which is the name of the field that holds it."""
    found = [block.get(kind) for block in blocks if isinstance(block, dict) and block.get("type") == kind]
    return whole_text("".join(text for text in found if isinstance(text, str)))


def _tool_input(blocks: list[Any]) -> str:
    """The input of the last use of a tool, where `extra_body` forces one."""
    inputs = [block.get("input") for block in blocks if isinstance(block, dict) and block.get("type") == "tool_use"]
    return json.dumps(inputs[-1]) if inputs and isinstance(inputs[-1], dict) else ""


def _join(events: EventStream) -> dict[str, Any] | None:
    """One message of a stream's events, which give its blocks in pieces."""
    message, blocks, ended = dict[str, Any](), dict[Any, dict[str, Any]](), False
    for event in events:
        match event:
            case {"type": "message_start", "message": dict(started)}:
                message = started
            case {"type": "content_block_start", "index": index, "content_block": dict(block)}:
                blocks[index] = block
            case {"type": "content_block_delta", "index": index, "delta": dict(delta)}:
                _add(blocks.setdefault(index, {}), delta)
            case {"type": "message_delta", "delta": dict(delta), **rest}:
                message |= delta
                message["usage"] = {**(message.get("usage") or {}), **(rest.get("usage") or {})}
            case {"type": "message_stop"}:
                ended = True
            case _:
                continue
    return message | {"content": list(blocks.values())} if ended else None


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    for name in ("text", "thinking"):
        if isinstance(piece := delta.get(name), str):
            block[name] = f"{block.get(name) or ''}{piece}"


PROTOCOL = ChatProtocol(
    path="/messages",
    address=_address,
    body=_body,
    parse=_parse,
    provider="anthropic",
    host=_HOST,
    sends=("top_p", "reasoning_effort", "enable_thinking"),
    join=_join,
)
