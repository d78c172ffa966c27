"""A server on loopback that takes and refuses requests as the documentation of Anthropic's messages API says."""

from collections.abc import Callable
from typing import Any

from helpers.scripted_server import Answer, ScriptedServer, scripted

KEY = "a key"  # what every request must bring
_KNOWN = {"model", "max_tokens", "messages", "system", "temperature", "top_p", "stop_sequences", "thinking", "output_config"}
_ROLES = ("user", "assistant")


def message(text: str = "Lyon", stop_reason: str = "end_turn", **values: Any) -> dict[str, Any]:
    """A message, as Anthropic sends it."""
    usage = {"input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 3}
    content = [{"type": "text", "text": text}] if text else []
    fixed = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None}
    return fixed | {"content": content, "stop_reason": stop_reason, "usage": usage} | values


def error(kind: str, text: str) -> dict[str, Any]:
    """An error, in the one shape that all have."""
    return {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}


class AnthropicServer(ScriptedServer):
    """Answers what is asked as it should be."""

    def respond(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Answer:
        if path != "/v1/messages":
            return 404, error("not_found_error", "Not Found")
        if headers.get("x-api-key") != KEY:
            return 401, error("authentication_error", "x-api-key header is required")
        if fault := _fault(headers, body):
            return 400, error("invalid_request_error", fault)
        return self.answer(body)


def _fault(headers: dict[str, str], body: dict[str, Any]) -> str | None:
    if "anthropic-version" not in headers:
        return "anthropic-version: header is required"
    if headers.get("Content-Type") != "application/json":
        return "content-type: must be application/json"
    for name, kind in (("model", str), ("max_tokens", int), ("messages", list)):
        if not isinstance(body.get(name), kind):
            return f"{name}: Field required"
    if unknown := body.keys() - _KNOWN:
        return f"{min(unknown)}: Extra inputs are not permitted"
    if not 0 <= body.get("temperature", 1.0) <= 1:
        return "temperature: range: 0..1"
    return _turn_fault(body) or next((f"stop_sequences: {text!r}" for text in body.get("stop_sequences", ()) if not text.strip()), None)


def _turn_fault(body: dict[str, Any]) -> str | None:
    for number, turn in enumerate(body["messages"]):
        if turn["role"] not in _ROLES:
            return f'messages: Unexpected role "{turn["role"]}". The Messages API accepts a top-level `system` parameter.'
        if not turn["content"]:
            return f"messages.{number}: all messages must have non-empty content"
    return None if body["messages"] else "messages: at least one message is required"


def anthropic(answer: Callable[[dict[str, Any]], Answer]) -> Any:
    """The server, for a `with` block; `answer` gets what was asked as it should be."""
    return scripted(answer, server_type=AnthropicServer)
