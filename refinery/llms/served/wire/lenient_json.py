"""Lenient reading of endpoints' responses: JSON of any depth, errors in providers' words, text in parts, token counts of any type."""

import json
import math
from dataclasses import dataclass
from typing import Any

_QUOTED_CHARACTERS = 300
# Providers' names for errors that come without an error status: with status 200, or inside a choice.
_STATUS_OF_KIND = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "insufficient_quota": 402,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "server_error": 500,
    "api_error": 500,
    "internal_server_error": 500,
    "overloaded_error": 529,
}


@dataclass(frozen=True, slots=True)
class ProviderError:
    """An error in its provider's words, in one line. `kinds` are its type and codes, `status` is the HTTP status that they mean."""

    message: str
    kinds: frozenset[str] = frozenset()
    status: int = 400


def read_json(content: bytes) -> Any:
    """The JSON of a response. Raises ValueError when it is not JSON, or is nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("nested too deep") from None


def provider_error(value: Any) -> ProviderError | None:
    """The error in a response's JSON, in any of the usual shapes, or None."""
    value = value[0] if isinstance(value, list) and value else value  # Google wraps an error in a list
    if not isinstance(value, dict):
        return None
    # vLLM's older servers send the error's fields bare, OpenRouter one inside a choice, FastAPI a `detail`.
    bare, chosen = value.get("object") == "error", first_choice(value)
    error = value.get("error") or (value if bare else chosen.get("error") if chosen else value.get("detail"))
    if not isinstance(error, dict):
        return ProviderError(one_line(error if isinstance(error, str) else _dumped(error))) if error else None
    details = error.get("details")  # which tell Anthropic's spent budgets from rate limits
    named = (error.get("code"), error.get("type"), details.get("error_code") if isinstance(details, dict) else None)
    kinds = frozenset(str(name).lower() for name in named if name is not None)
    known = [_STATUS_OF_KIND[kind] for kind in kinds if kind in _STATUS_OF_KIND]
    codes = [int(kind) for kind in kinds if kind.isascii() and kind.isdigit() and 400 <= int(kind[:4]) < 600]
    message = error.get("message")
    return ProviderError(one_line(message if isinstance(message, str) else _dumped(error)), kinds, min(known or codes or [400]))


def one_line(text: str | bytes) -> str:
    """The beginning of a text in one line, safe for a terminal."""
    start = text[:_QUOTED_CHARACTERS]
    shown = start.decode(errors="replace") if isinstance(start, bytes) else start
    return " ".join("".join(character if character.isprintable() else " " for character in shown).split())


def first_choice(value: Any) -> dict[str, Any] | None:
    """The first choice of a reply, or None. `choices` may also be an object: the choice itself, or choices by number."""
    choices = value.get("choices") if isinstance(value, dict) else None
    if isinstance(choices, dict):
        choices = [choices] if "message" in choices else list(choices.values())
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else None


def content_text(content: Any) -> str:
    """A message's content as text, from a text, a number, or parts. Raises ValueError for anything else."""
    match content:
        case None:
            return ""
        case str():
            return whole_text(content)
        case int() | float():
            return json.dumps(content)
        case {"text": str(text)}:
            return whole_text(text)
        case list() if not any(isinstance(part, list) for part in content):
            return "".join(content_text(part) for part in content if not _is_reasoning(part))
    raise ValueError(f"its content is {one_line(_dumped(content))}")


def token_count(count: Any) -> int:
    """A number of tokens, or 0 for anything that is not a number."""
    try:
        number = float(count)
    except (TypeError, ValueError, OverflowError):
        return 0
    return int(number) if math.isfinite(number) and number > 0 else 0


def cached_count(usage: dict[str, Any]) -> int:
    """The prompt's cached tokens, by OpenAI's, DeepSeek's or Moonshot's field names; 0 if the count exceeds the prompt's length."""
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    within = details.get("cached_tokens") if isinstance(details, dict) else None
    count = max(map(token_count, (within, usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens"))))
    read = max(map(token_count, (usage.get("prompt_tokens"), usage.get("input_tokens"))))
    return count if count <= read else 0


def whole_text(text: str) -> str:
    """The text with lone surrogates replaced, which JSON can express but no file can contain."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _is_reasoning(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("thinking", "reasoning")


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "nested too deep"
