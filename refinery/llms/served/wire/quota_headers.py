"""Rate limits that servers report in the headers of a response.

It reads the headers of OpenAI, Azure, Groq and Cerebras (`x-ratelimit-remaining-tokens`), Mistral (`x-ratelimit-remaining-req-minute`),
Anthropic (`anthropic-ratelimit-input-tokens-reset`), Together and OpenRouter (`x-ratelimit-remaining`), and of IETF's drafts
(`ratelimit-remaining`, `ratelimit: "default";r=50;t=30`). Implausible values are ignored: negative ones, those that are not
numbers, and times more than a day away.
"""

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

_MOST = 1e12
_DAY_SECONDS = 86_400.0
_FIELDS = ("limit", "remaining", "reset")
_UNITS = {"": "requests", "requests": "requests", "req": "requests"} | {name: name for name in ("tokens", "input-tokens", "output-tokens")}
_PERIODS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": _DAY_SECONDS}
_NAME = re.compile(r"(?:x-|anthropic-)?ratelimit-(.+)")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?", re.ASCII)
_DURATION_SECONDS = (_DAY_SECONDS, 3600.0, 60.0, 1.0, 0.001)
_PARAMETER = re.compile(r"\b(limit|remaining|reset|r|t)=(\d+)")
_DRAFT_FIELDS = {"r": "remaining", "t": "reset"}
# Larger numbers are timestamps, in seconds or milliseconds since 1970.
_EPOCH_SECONDS, _EPOCH_MILLISECONDS = 1e9, 1e11


@dataclass(frozen=True, slots=True)
class ToldLimit:
    """One limit that a response reports: of `requests`, `tokens`, `input-tokens` or `output-tokens`.

    `reset_seconds` is the time until `limit` is fully available again, because it refills continuously (`refills`) or a window ends.
    `period_seconds` is known if the header's name contains it. None means that the server does not say.
    """

    unit: str
    remaining: float
    limit: float | None = None
    reset_seconds: float | None = None
    period_seconds: float | None = None
    refills: bool = True


def read_limits(headers: Mapping[str, str]) -> dict[str, ToldLimit]:
    """The limits that a response reports, by the unit and period in the headers' names."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for name, value in headers.items():
        if "ratelimit" in (name := name.lower()):
            if name == "ratelimit":
                found[""].update({_DRAFT_FIELDS.get(match[1], match[1]): match[2] for match in _PARAMETER.finditer(value)})
            elif (place := _kind_and_field(name)) is not None:
                found[place[0]][place[1]] = value
    told = {kind: _told(kind, fields, headers.get("Date")) for kind, fields in found.items()}
    return {kind: limit for kind, limit in told.items() if limit is not None}


@lru_cache(maxsize=256)
def _kind_and_field(name: str) -> tuple[str, str] | None:
    """The kind of limit and the field in a header's name, or None."""
    match = _NAME.fullmatch(name)
    words = match[1].split("-") if match else []
    field = next((word for word in words if word in _FIELDS), None)
    if field is None:
        return None
    words.remove(field)
    return "-".join(words), field


def _told(kind: str, fields: Mapping[str, str], date: str | None) -> ToldLimit | None:
    """The limit, or None if it limits something else or a value is implausible."""
    unit, _, period = kind.rpartition("-")
    if period not in _PERIODS:
        unit, period = kind, ""
    limit, remaining = (_number(fields.get(field, "").partition(",")[0].partition(";")[0]) for field in ("limit", "remaining"))
    reset_seconds = _reset_seconds(fields["reset"].strip(), date) if "reset" in fields else None
    silly = limit == 0 or ("limit" in fields and limit is None) or ("reset" in fields and reset_seconds is None)
    if unit not in _UNITS or silly or remaining is None or (limit is not None and remaining > limit):
        return None
    return ToldLimit(_UNITS[unit], remaining, limit, reset_seconds, _PERIODS.get(period), refills=bool(kind))


def _number(text: str) -> float | None:
    number = _finite(text)
    return number if number is not None and 0 <= number <= _MOST else None


def _reset_seconds(text: str, date: str | None) -> float | None:
    """Seconds from the response until the reset: from a number, a duration (`6m0s`, `20ms`) or a timestamp."""
    try:
        seconds = _seconds(text, date)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds <= _DAY_SECONDS else None


def _seconds(text: str, date: str | None) -> float:
    if text and (match := _DURATION.fullmatch(text)):
        return sum(float(number or 0) * seconds for number, seconds in zip(match.groups(), _DURATION_SECONDS, strict=True))
    number = _finite(text)
    if number is None:
        moment = datetime.fromisoformat(text)
        return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - _now(date)).total_seconds())
    if number < _EPOCH_SECONDS:
        return number
    return max(0.0, number / (1000 if number >= _EPOCH_MILLISECONDS else 1) - _now(date).timestamp())


def _now(date: str | None) -> datetime:
    """The server's time, because this machine's clock may differ."""
    try:
        now = parsedate_to_datetime(date or "")
    except ValueError:
        return datetime.now(UTC)
    return now.replace(tzinfo=now.tzinfo or UTC)


def retry_after_seconds(headers: Mapping[str, str], *, most: float) -> float:
    """The seconds of `retry-after-ms` or `Retry-After`, which may be a date, or 0 if neither is useful."""
    milliseconds = _finite(headers.get("retry-after-ms", ""))
    seconds = _finite(headers.get("Retry-After", "")) if milliseconds is None else milliseconds / 1000
    if seconds is None:
        try:
            when = parsedate_to_datetime(headers.get("Retry-After", ""))
        except (ValueError, OverflowError):
            return 0.0
        seconds = (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), most)


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and text.isascii() else None
