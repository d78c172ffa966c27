"""Servers that stream although they are not asked to, and servers that send web pages."""

import json
from typing import Any

from helpers.anthropic_server import message as claude
from helpers.scripted_server import Answer
from helpers.wild_endpoints.table import LABEL, OK, WildEndpoint, at_question, in_turn

HALVES = (LABEL[:20], LABEL[20:])


def stream(*events: Any, end: bytes = b"data: [DONE]\n\n") -> Answer:
    """The events as a server sends them."""
    return 200, b": ping\n\n" + b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + end


def chunk(delta: dict[str, Any], finish_reason: str | None = None, **values: Any) -> dict[str, Any]:
    """A part of a chat completion."""
    return {"id": "chatcmpl-1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]} | values


CHUNKS = [
    chunk({"role": "assistant", "reasoning_content": "Who"}),
    chunk({"reasoning_content": " first?"}),
    *(chunk({"content": half}) for half in HALVES),
    chunk({}, "stop"),
    {"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}},
]
CALLS = [
    chunk({"tool_calls": [{"index": 0, "id": "1", "function": {"name": "answer", "arguments": ""}}]}),
    *(chunk({"tool_calls": [{"index": 0, "function": {"arguments": half}}]}) for half in HALVES),
    chunk({}, "tool_calls"),
]
CLAUDE = [
    {"type": "message_start", "message": claude("", usage={"input_tokens": 9, "output_tokens": 1})},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Who?"}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    *({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": half}} for half in HALVES),
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]
PAGE = b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head>\n<body><h1>nginx</h1></body></html>"
USAGE = {"num_prompt_tokens": 36, "num_completion_tokens": 12}

STREAMS = [
    WildEndpoint("a stream that nobody asked for", lambda body: stream(*CHUNKS), metrics=USAGE),
    WildEndpoint("a stream without its mark at the end", lambda body: stream(*CHUNKS, end=b"")),
    WildEndpoint("a stream of a tool's arguments", lambda body: stream(*CALLS)),
    WildEndpoint(
        "a stream of Anthropic's events", lambda body: stream(*CLAUDE, end=b""), teacher={"protocol": "anthropic_messages"}, metrics=USAGE
    ),
    WildEndpoint("a stream that breaks off, once", in_turn(stream(*CHUNKS[:3], end=b"")), paid=5),
    WildEndpoint(
        "streams that break off",
        lambda body: stream(*CHUNKS[:3], end=b""),
        kept=0,
        paid=12,  # two tries each, and the tiny request that finds out whether the server is out
        rejected={"no_reply": 4},
        says=("the server streams its reply, and the stream has no end (3 events)",),
    ),
    WildEndpoint(
        "an error in a stream",
        in_turn(stream({"error": {"message": "Overloaded", "code": 529}}, end=b"")),
        paid=5,
    ),
    WildEndpoint(
        "a web page instead of an API",
        lambda body: (200, b"\n<html><head><title>Sign in</title></head></html>"),
        kept=0,
        paid=3,  # with the tiny request that finds out whether the server is out
        code=2,
        says=("the reply is not JSON (malformed): a web page ('Sign in'). Check base_url",),
    ),
    WildEndpoint(
        "a gateway's page without a title",
        at_question(0, (403, b"<html><style>p {}</style><p>Access <b>denied</b> &amp; logged</p></html>")),
        kept=3,
        paid=4,  # with the tiny request that finds out whether the key is refused
        rejected={"refused": 1},
        says=("status 403: a web page ('Access denied & logged')",),
    ),
    WildEndpoint("a gateway's page, once", in_turn((502, PAGE)), sent=5),
    WildEndpoint(
        "a gateway's page for one prompt",
        lambda body: (502, PAGE) if "film 1?" in str(body) else OK,
        kept=3,
        paid=4,  # with the tiny request that finds out whether the server is out
        rejected={"no_reply": 1},
        says=("status 502: a web page ('502 Bad Gateway')",),
    ),
]
