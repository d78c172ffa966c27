"""OpenAI's Responses API and Anthropic's messages, as their documentation describes them."""

from collections.abc import Callable
from typing import Any

from helpers.anthropic_server import KEY, AnthropicServer, error
from helpers.anthropic_server import message as claude
from helpers.scripted_server import Answer
from helpers.wild_endpoints.streams import HALVES, stream
from helpers.wild_endpoints.table import LABEL, WildEndpoint, refuses

RESPONSES = {"protocol": "openai_responses"}
MESSAGES = {"protocol": "anthropic_messages"}
KEYS = {"ANTHROPIC_API_KEY": KEY}
REASONING = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Who first?"}]}


def response(*items: dict[str, Any], text: str = LABEL, **values: Any) -> dict[str, Any]:
    """A response, as OpenAI sends it."""
    said = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}] if text else []
    usage = {"input_tokens": 9, "output_tokens": 70, "output_tokens_details": {"reasoning_tokens": 60}, "total_tokens": 79}
    fixed = {"id": "resp_1", "object": "response", "model": "m", "status": "completed", "error": None, "incomplete_details": None}
    return fixed | {"output": [*items, *said], "usage": usage} | values


def gives(*items: dict[str, Any], **values: Any) -> Callable[[dict[str, Any]], Answer]:
    """Answers every request for a response."""
    return lambda body: (200, response(*items, **values)) if "input" in body else (404, {"error": {"message": "Not Found"}})


def checks(body: dict[str, Any]) -> Answer:
    """Takes what the API takes, and no more."""
    if unknown := body.keys() - {"model", "input", "max_output_tokens", "temperature", "top_p", "reasoning", "text", "store"}:
        return refuses(400, f"Unknown parameter: '{min(unknown)}'.")
    if body["max_output_tokens"] < 16:
        return refuses(400, "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16")
    form = body["text"]["format"]
    fits = (form["type"], body["reasoning"], body["store"]) == ("json_schema", {"effort": "low", "summary": "auto"}, False)
    return (200, response(REASONING)) if fits else refuses(400, "another form")


RESPONSES_API = [
    WildEndpoint(
        "the Responses API",
        checks,
        teacher=RESPONSES | {"reasoning_effort": "low", "extra_body": {"reasoning": {"summary": "auto"}}, "max_tokens": 10},
        metrics={"num_prompt_tokens": 36, "num_completion_tokens": 280, "num_reasoning_tokens": 240},
    ),
    WildEndpoint(
        "a correction where each turn needs its type (llama.cpp)",
        lambda body: (
            refuses(400, "Cannot determine type of 'item'")
            if any("type" not in turn for turn in body["input"])
            else (200, response(text=LABEL if len(body["input"]) > 1 else "It is a film."))
        ),
        paid=8,
        teacher=RESPONSES,
    ),
    WildEndpoint(
        "a response that refuses temperature (gpt-5)",
        lambda body: (
            refuses(400, "Unsupported parameter: 'temperature' is not supported with this model.")
            if "temperature" in body
            else (200, response())
        ),
        sent=5,
        teacher=RESPONSES,
        says=("refuses `temperature`; requests leave it out",),
    ),
    WildEndpoint(
        "a response that is all reasoning",
        gives(REASONING, text="", status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        kept=0,
        teacher=RESPONSES,
        rejected={"only_reasoning": 4},
    ),
    WildEndpoint(
        "a response that is filtered",
        gives(text="", status="incomplete", incomplete_details={"reason": "content_filter"}),
        kept=0,
        teacher=RESPONSES,
        rejected={"refused": 4},
    ),
    WildEndpoint(
        "a response that refuses",
        gives({"type": "message", "content": [{"type": "refusal", "refusal": "I won't."}]}, text=""),
        kept=0,
        teacher=RESPONSES,
        rejected={"refused": 4},
        says=("I won't.",),
    ),
    WildEndpoint(
        "a response that calls a tool", gives({"type": "function_call", "name": "answer", "arguments": LABEL}, text=""), teacher=RESPONSES
    ),
    WildEndpoint(
        "a streamed response",
        lambda body: stream(
            *({"type": "response.output_text.delta", "delta": half} for half in HALVES),
            {"type": "response.completed", "response": response()},
            end=b"",
        ),
        teacher=RESPONSES,
    ),
    WildEndpoint(
        "Claude thinks",
        lambda body: (
            (200, claude(LABEL)) if (body["thinking"], "temperature" in body) == ({"type": "adaptive"}, False) else (400, error("", "no"))
        ),
        teacher=MESSAGES | {"enable_thinking": True, "reasoning_effort": "low", "reasoning_tokens": 4000},
        env=KEYS,
        server_type=AnthropicServer,
    ),
    WildEndpoint(
        "Claude uses a tool",
        lambda body: (
            200,
            claude(
                "", "tool_use", content=[{"type": "tool_use", "name": "answer", "input": {"sub_questions": ["Who?", "Where was #1 born?"]}}]
            ),
        ),
        teacher=MESSAGES,
        env=KEYS,
        server_type=AnthropicServer,
    ),
]
