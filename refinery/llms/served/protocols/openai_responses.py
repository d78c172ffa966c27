"""OpenAI's Responses API, for OpenAI, Azure's /openai/v1, vLLM, and gateways that have it. Some models have no other.

Differences from chat completions: messages are `input`, the limit is `max_output_tokens`, a schema is in `text.format`, a reply is a list
of items, and there are no stop texts and no seed. The provider does not store replies (`store: false`). For a summary of the reasoning,
set `extra_body: {reasoning: {summary: auto}}`.
"""

from typing import Any

from refinery.llms.served.endpoint import EndpointConfig, Reply
from refinery.llms.served.protocols.base import Chat, ChatProtocol
from refinery.llms.served.protocols.openai_chat import openai_address
from refinery.llms.served.wire.event_stream import EventStream
from refinery.llms.served.wire.lenient_json import cached_count, content_text, provider_error, token_count, whole_text
from refinery.llms.served.wire.responses import fault_of, no_reply_in
from refinery.llms.thinking import split_thinking

_LEAST_TOKENS = 16  # the API refuses a lower limit
_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")


def _body(chat: Chat, config: EndpointConfig) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": config.model,
        # llama.cpp's server refuses an assistant's turn without its type, which OpenAI allows to leave out.
        "input": [{"type": "message", "role": role, "content": content} for role, content in chat.messages],
        "temperature": chat.temperature,
        "max_output_tokens": max(chat.max_tokens, _LEAST_TOKENS),
        "store": False,
    }
    if chat.json_schema is not None:
        name = chat.json_schema.get("title", "reply")
        body["text"] = {"format": {"type": "json_schema", "name": name, "schema": chat.json_schema, "strict": False}}
    if config.top_p is not None:
        body["top_p"] = config.top_p
    if config.reasoning_effort is not None:
        body["reasoning"] = {"effort": config.reasoning_effort}
    return body


def _parse(response: Any) -> Reply:
    if fault := provider_error(response):  # of a stream, whose last event has it
        raise fault_of(fault.status, fault, fault.message)
    items = response.get("output") if isinstance(response, dict) else None
    if not isinstance(items, list):
        raise no_reply_in("the reply has no output")
    usage, details = _object(response.get("usage")), _object(response.get("incomplete_details"))
    refusal = _parts(items, "message", "content", ("refusal",))
    content = _parts(items, "message", "content", ("output_text", "text")) or _arguments(items)
    thought, text = split_thinking(content)
    reason = whole_text(str(details.get("reason") or response.get("status") or "completed"))
    told = _parts(items, "reasoning", "content", ("reasoning_text", "text")) or _parts(items, "reasoning", "summary", ("summary_text",))
    return Reply(
        text=text or refusal,
        finish_reason="refusal" if refusal else reason,
        request_id=whole_text(str(response.get("id", ""))),
        num_prompt_tokens=token_count(usage.get("input_tokens")),
        num_completion_tokens=token_count(usage.get("output_tokens")),
        model=whole_text(str(response.get("model", ""))),
        reasoning=told or thought,
        num_reasoning_tokens=token_count(_object(usage.get("output_tokens_details")).get("reasoning_tokens")),
        num_cached_tokens=cached_count(usage),
    )


def _parts(items: list[Any], item_type: str, field: str, kinds: tuple[str, ...]) -> str:
    """The joined texts of the parts of these kinds, in a field of the items of one type."""
    fields = [item.get(field) for item in items if isinstance(item, dict) and item.get("type") == item_type]
    parts = [part for parts in fields if isinstance(parts, list) for part in parts if isinstance(part, dict)]
    return "".join(content_text(part.get("text") or part.get("refusal")) for part in parts if part.get("type") in kinds)


def _arguments(items: list[Any]) -> str:
    """The arguments of the last tool call, where some models put the requested object."""
    calls = [item.get("arguments") for item in items if isinstance(item, dict) and item.get("type") == "function_call"]
    return content_text(calls[-1]) if calls and isinstance(calls[-1], str) else ""


def _join(events: EventStream) -> Any:
    """The response in a stream's last event."""
    ends = [event.get("response") for event in events if isinstance(event, dict) and event.get("type") in _LAST_EVENTS]
    return ends[-1] if ends else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


PROTOCOL = ChatProtocol(
    path="/responses",
    address=openai_address,
    body=_body,
    parse=_parse,
    provider="openai",
    host="api.openai.com",
    takes_schemas=True,
    sends=("top_p", "reasoning_effort"),
    join=_join,
)
