"""Limits as servers write them into headers."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from refinery.llms.served.wire.quota_headers import ToldLimit, read_limits, retry_after_seconds

NOW = datetime.now(UTC).replace(microsecond=0)
DATE = {"Date": format_datetime(NOW, usegmt=True)}
IN_30_SECONDS = (NOW + timedelta(seconds=30)).isoformat().replace("+00:00", "Z")


def openai(limit="500", remaining="499", reset="120ms", *, of="requests"):
    return {f"x-ratelimit-limit-{of}": limit, f"x-ratelimit-remaining-{of}": remaining, f"x-ratelimit-reset-{of}": reset}


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (openai(), ToldLimit("requests", 499, 500, 0.12)),
        (openai(reset="6m0s", of="tokens"), ToldLimit("tokens", 499, 500, 360)),
        (openai(reset="1h2m3.5s"), ToldLimit("requests", 499, 500, 3723.5)),
        (openai(reset="7"), ToldLimit("requests", 499, 500, 7)),  # Azure
        (openai(limit="4.5e2", remaining="3e2", reset="0.5"), ToldLimit("requests", 300, 450, 0.5)),
        ({"X-RateLimit-Remaining-Requests": "19"}, ToldLimit("requests", 19)),
        (
            {"x-ratelimit-limit-req-minute": "720", "x-ratelimit-remaining-req-minute": "717", "x-ratelimit-tokens-query-cost": "52"},
            ToldLimit("requests", 717, 720, period_seconds=60),  # Mistral
        ),
        (openai(of="tokens-day", reset="86000.5"), ToldLimit("tokens", 499, 500, 86000.5, 86400)),  # Cerebras
        (
            {"anthropic-ratelimit-input-tokens-limit": "90", "anthropic-ratelimit-input-tokens-remaining": "80"}
            | {"anthropic-ratelimit-input-tokens-reset": IN_30_SECONDS}
            | DATE,
            ToldLimit("input-tokens", 80, 90, 30),
        ),
        (
            {"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": f"{NOW.timestamp() * 1000 + 30_000:.0f}"} | DATE,
            ToldLimit("requests", 0, 20, 30, refills=False),  # OpenRouter
        ),
        (
            {"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "50", "ratelimit-reset": "7"},
            ToldLimit("requests", 50, 100, 7, refills=False),
        ),
        ({"RateLimit": "limit=100, remaining=50, reset=7"}, ToldLimit("requests", 50, 100, 7, refills=False)),
        ({"RateLimit": '"default";r=50;t=30'}, ToldLimit("requests", 50, None, 30, refills=False)),
    ],
)
def test_a_limit_is_read_in_the_words_of_its_server(headers, told):
    assert list(read_limits(headers).values()) == [told]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/json", "x-request-id": "ratelimit"},
        openai(limit="-1", remaining="-1", reset="0"),  # Azure, when it does not know
        openai(remaining="nan"),
        openai(remaining="inf"),
        openai(remaining="501"),
        openai(limit="0", remaining="0"),
        openai(limit="many"),
        openai(reset="3 years"),
        openai(reset="-5"),
        openai(reset="9999-12-31T00:00:00Z"),
        openai(reset="9" * 400),
        openai(reset="٣s"),
        openai(reset=""),
        openai(of="images"),
        {"x-ratelimit-limit-requests": "500", "x-ratelimit-reset-requests": "1s"},
        {"x-ratelimit-remaining-": "5-", "x-ratelimit-": "1", "ratelimit-policy": '"default";q=100;w=10'},
    ],
)
def test_a_limit_that_no_server_can_mean_is_ignored(headers):
    assert read_limits(headers) == {}


def test_a_moment_is_read_by_the_clock_of_the_server():
    an_hour_ago = NOW - timedelta(hours=1)
    headers = openai(reset=(an_hour_ago + timedelta(seconds=20)).isoformat()) | {"Date": format_datetime(an_hour_ago, usegmt=True)}
    assert read_limits(headers)["requests"].reset_seconds == 20


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "250", "Retry-After": "7"}, 0.25),
        ({"retry-after-ms": "soon", "Retry-After": "7"}, 7),
        ({"Retry-After": "1e300"}, 120),
        ({"Retry-After": "-4"}, 0),
        ({"Retry-After": "nan"}, 0),
        ({"retry-after-ms": "-inf"}, 0),
        ({}, 0),
    ],
)
def test_a_retry_after_is_read_in_both_its_units(headers, seconds):
    assert retry_after_seconds(headers, most=120) == seconds
