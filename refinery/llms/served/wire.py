"""What endpoints send, read leniently: JSON of any depth, errors in their providers' words, text in parts, token counts of any type."""

import json
import math
from dataclasses import dataclass
from typing import Any

_QUOTED_CHARACTERS = 300
# What providers call an error that comes without a status of its own: with status 200, or inside a choice.
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
    """An error in its provider's words, in one line; `kinds` are its type and codes, `status` what they stand for."""

    message: str
    kinds: frozenset[str] = frozenset()
    status: int = 400


def read_json(content: bytes) -> Any:
    """The JSON of a response. Raises ValueError where it is none, or is nested too deep to be read."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("nested too deep") from None


def provider_error(value: Any) -> ProviderError | None:
    """The error that a response's JSON holds, whichever of the usual shapes it has; None where it holds none."""
    value = value[0] if isinstance(value, list) and value else value  # Google wraps an error in a list
    if not isinstance(value, dict):
        return None
    # vLLM's older servers send the error's fields bare, OpenRouter one inside a choice, FastAPI a `detail`.
    bare, chosen = value.get("object") == "error", first_choice(value)
    error = value.get("error") or (value if bare else chosen.get("error") if chosen else value.get("detail"))
    if not isinstance(error, dict):
        return ProviderError(one_line(error if isinstance(error, str) else _dumped(error))) if error else None
    details = error.get("details")  # where Anthropic tells a spent budget from a rate
    named = (error.get("code"), error.get("type"), details.get("error_code") if isinstance(details, dict) else None)
    kinds = frozenset(str(name).lower() for name in named if name is not None)
    known = [_STATUS_OF_KIND[kind] for kind in kinds if kind in _STATUS_OF_KIND]
    codes = [int(kind) for kind in kinds if kind.isascii() and kind.isdigit() and 400 <= int(kind[:4]) < 600]
    message = error.get("message")
    return ProviderError(one_line(message if isinstance(message, str) else _dumped(error)), kinds, min(known or codes or [400]))


def one_line(text: str | bytes) -> str:
    """The beginning of a text in one line, as it may be shown on a terminal."""
    start = text[:_QUOTED_CHARACTERS]
    shown = start.decode(errors="replace") if isinstance(start, bytes) else start
    return " ".join("".join(character if character.isprintable() else " " for character in shown).split())


def first_choice(value: Any) -> dict[str, Any] | None:
    """The first choice of a reply, also where `choices` is an object: the choice itself, or choices by number. None where there is none."""
    choices = value.get("choices") if isinstance(value, dict) else None
    if isinstance(choices, dict):
        choices = [choices] if "message" in choices else list(choices.values())
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else None


def content_text(content: Any) -> str:
    """A message's content as text: as it is, a number, or the texts of its parts. Raises ValueError where it holds something else."""
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
    """A number of tokens; 0 for what is none."""
    try:
        number = float(count)
    except (TypeError, ValueError, OverflowError):
        return 0
    return int(number) if math.isfinite(number) and number > 0 else 0


def whole_text(text: str) -> str:
    """The text with half a surrogate pair, which JSON can spell and no file can hold, replaced."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _is_reasoning(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("thinking", "reasoning")


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "nested too deep"
