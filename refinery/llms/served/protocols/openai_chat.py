"""OpenAI's Chat Completions, for OpenAI, Azure, vLLM, SGLang, llama.cpp and most gateways. Replies are read leniently."""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from refinery.contract.search_tool import SEARCH_TOOL, SearchCall, calls_message, found_message
from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest, Reply
from refinery.llms.served.protocols.base import Address, Chat, ChatProtocol, FirstLogprobs, api_key
from refinery.llms.served.wire.event_stream import EventStream
from refinery.llms.served.wire.lenient_json import cached_count, content_text, first_choice, token_count, whole_text
from refinery.llms.served.wire.responses import no_reply_in
from refinery.llms.thinking import split_thinking

_HOST = "api.openai.com"
_ACCOUNT_HEADERS = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
_TOP_LOGPROBS = 20  # OpenAI's maximum


def openai_client(config: EndpointConfig, base_url: str | None, *, max_retries: int = 0) -> Any:
    """The official client for one address, for routes other than chats: files and Batch jobs."""
    from openai import AsyncAzureOpenAI, AsyncOpenAI, DefaultAsyncHttpxClient

    key = api_key(config) or "none"
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


def openai_address(config: EndpointConfig, base_url: str | None) -> Address:
    """The address and headers that the official client reads from the environment, without the second that importing it takes."""
    key = api_key(config)
    if config.azure_api_version:
        base = f"{(base_url or '').rstrip('/')}/openai/deployments/{config.model}"
        return Address(base, f"?api-version={config.azure_api_version}", {"api-key": key} if key else {})
    base = base_url or os.environ.get("OPENAI_BASE_URL") or f"https://{_HOST}/v1"
    extra = {name: value for name, variable in _ACCOUNT_HEADERS.items() if (value := os.environ.get(variable))}
    return Address(base.rstrip("/"), headers=({"Authorization": f"Bearer {key}"} if key else {}) | extra)


def _body(chat: Chat, config: EndpointConfig) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": config.model,
        "messages": [*_messages(chat.messages)],
        "temperature": chat.temperature,
        config.max_tokens_name: chat.max_tokens,
    }
    if chat.stop:
        body["stop"] = list(chat.stop)
    if chat.json_schema is not None:
        schema = {"name": chat.json_schema.get("title", "reply"), "schema": chat.json_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if chat.first_logprobs:
        body |= {"logprobs": True, "top_logprobs": _TOP_LOGPROBS}
    if chat.token_logprobs:
        body["logprobs"] = True
    if chat.tools:
        body |= {"tools": [SEARCH_TOOL], "tool_choice": "auto" if chat.tools == "offered" else "none"}
    return body | _optional(chat, config)


def _messages(messages: Sequence[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Messages as the API takes them. A `call` is the JSON of its calls, which the `tool` messages after it answer in order."""
    answered = 0
    for role, content in messages:
        if role == "call":
            answered = 0
            yield calls_message([SearchCall(**call) for call in json.loads(content)], as_json=True)
        elif role == "tool":
            yield found_message(content, answered)
            answered += 1
        else:
            yield {"role": role, "content": content}


def _optional(chat: Chat, config: EndpointConfig) -> dict[str, Any]:
    values = {"top_p": config.top_p, "seed": chat.seed, "reasoning_effort": config.reasoning_effort}
    if config.enable_thinking is not None:
        # Qwen3's template reads the first, that of DeepSeek-V3.1 and Granite the second; a template ignores what it does not read.
        values["chat_template_kwargs"] = dict.fromkeys(("enable_thinking", "thinking"), config.enable_thinking)
    return {name: value for name, value in values.items() if value is not None}


def _parse(completion: Any) -> Reply:
    choice = first_choice(completion)
    if choice is None:
        raise no_reply_in("the reply has no choices")
    message, usage = choice.get("message") or {}, completion.get("usage")
    message = message if isinstance(message, dict) else {"content": message}
    usage = usage if isinstance(usage, dict) else {}
    try:
        refusal, content = content_text(message.get("refusal")), content_text(message.get("content")) or _arguments(message)
        told = content_text(message.get("reasoning_content") or message.get("reasoning"))
    except ValueError as error:
        raise RefusedRequest(f"the reply has no text: {error}") from None
    thought, content = split_thinking(content)
    num_prompt_tokens, num_completion_tokens, num_reasoning_tokens = _counts(usage)
    return Reply(
        text=content or refusal,
        finish_reason="refusal" if refusal else whole_text(str(choice.get("finish_reason") or "stop")),
        request_id=whole_text(str(completion.get("id", ""))),
        num_prompt_tokens=num_prompt_tokens,
        num_completion_tokens=num_completion_tokens,
        model=whole_text(str(completion.get("model", ""))),
        reasoning=told or thought,
        num_reasoning_tokens=num_reasoning_tokens,
        num_cached_tokens=cached_count(usage),
    )


def _arguments(message: dict[str, Any]) -> str:
    """The arguments of the message's last tool call, where some servers and models put the requested object."""
    calls = message.get("tool_calls")
    called = [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    last = next((one for one in reversed([message.get("function_call"), *called]) if isinstance(one, dict)), {})
    arguments = last.get("arguments")
    return whole_text(arguments) if isinstance(arguments, str) else json.dumps(arguments) if isinstance(arguments, dict) else ""


def _tool_calls(completion: Any) -> list[tuple[str, Any]]:
    """The names and arguments of the message's tool calls; a call that has no form of its own has no name."""
    message = (first_choice(completion) or {}).get("message")
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    functions = [call.get("function") if isinstance(call, dict) else None for call in calls] if isinstance(calls, list) else []
    return [(str(one.get("name")), one.get("arguments")) if isinstance(one, dict) else ("", None) for one in functions]


def _counts(usage: dict[str, Any]) -> tuple[int, int, int]:
    """Tokens of the prompt, of all that was written, and of the reasoning in it."""
    details = usage.get("completion_tokens_details")
    read, written, total = (token_count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens", "total_tokens"))
    reasoning = token_count(details.get("reasoning_tokens")) if isinstance(details, dict) else 0
    if (unnamed := total - read - written) > 0:  # Gemini and Grok count reasoning in the total alone
        written, reasoning = written + unnamed, max(reasoning, unnamed)
    return read, written, reasoning


def _join(events: EventStream) -> dict[str, Any] | None:
    """One completion of a stream's chunks. The end is the server's mark, or the choice's finish_reason."""
    message, whole, finish_reason = dict[str, Any](), dict[str, Any](), None
    for event in events:
        if not isinstance(event, dict):
            continue
        choice = first_choice(event) or {}
        if isinstance(delta := choice.get("delta") or choice.get("message"), dict):
            _add(message, delta)
        finish_reason = choice.get("finish_reason") or finish_reason
        whole |= {name: value for name, value in event.items() if value is not None}
    return whole | {"choices": [{"message": message, "finish_reason": finish_reason}]} if finish_reason or events.ended else None


def _add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a chunk to the message. The arguments of a tool call arrive in pieces too."""
    _add_texts(message, delta)
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else [{"function": delta.get("function_call")}]:
        if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
            _add_texts(message.setdefault("function_call", {}), function)


def _add_texts(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    for name, value in piece.items():
        before = whole.get(name)
        if isinstance(value, str):
            whole[name] = f"{before}{value}" if isinstance(before, str) and name != "role" else value
        elif isinstance(value, list) and name != "tool_calls":
            whole[name] = [*before, *value] if isinstance(before, list) else value


def _first_logprobs(completion: Any) -> FirstLogprobs | None:
    """The first token's alternatives in OpenAI's format, or None for any other format, which many servers send."""
    try:
        first = (first_choice(completion) or {})["logprobs"]["content"][0]
        return tuple((str(token["token"]), float(token["logprob"])) for token in first["top_logprobs"]) or None
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def _token_logprobs(completion: Any) -> list[tuple[str, float]]:
    """The reply's tokens with their log-probabilities; none for any other format."""
    try:
        return [(str(token["token"]), float(token["logprob"])) for token in (first_choice(completion) or {})["logprobs"]["content"]]
    except (KeyError, TypeError, ValueError):
        return []


PROTOCOL = ChatProtocol(
    path="/chat/completions",
    address=openai_address,
    body=_body,
    parse=_parse,
    provider="openai",
    host=_HOST,
    takes_schemas=True,
    sends=("top_p", "seed", "reasoning_effort", "enable_thinking"),
    tool_calls=_tool_calls,
    first_logprobs=_first_logprobs,
    token_logprobs=_token_logprobs,
    join=_join,
    openai_routes=True,
)
