"""What the client of an endpoint does when a real server on loopback goes away or comes back."""

import time

import pytest
from helpers.endpoint_client import ask, texts
from helpers.scripted_server import chat_reply, prompt_of, scripted

from refinery.llms.served.endpoint import UnusableEndpoint


class Shaky:
    """Answers until `rows` are answered, then is out for so long; `during` counts what it was sent meanwhile."""

    def __init__(self, rows: int, seconds: float) -> None:
        self.rows, self.seconds, self.answered, self.during, self.out_until = rows, seconds, 0, 0, float("inf")
        self.open = self.peak = 0

    def __call__(self, body):
        now = time.monotonic()
        if self.answered >= self.rows and self.out_until == float("inf"):
            self.out_until = now + self.seconds
        if self.answered >= self.rows and now < self.out_until:
            self.during += 1
            return 503, {"error": {"message": "down for a moment"}}
        time.sleep(0.01)
        self.answered += 1
        return 200, chat_reply("Lyon")


@pytest.mark.parametrize("calls_in_flight", [1, 16])
def test_an_outage_costs_no_row_and_is_probed_not_stormed(calls_in_flight):
    with scripted(shaky := Shaky(rows=20, seconds=2.5)) as server:
        outcomes = ask([f"{n}?" for n in range(60)], server.base_url, calls_in_flight=calls_in_flight, max_tries=1)
    assert texts(outcomes) == ["Lyon"] * 60
    assert shaky.during <= 16 + 8  # what was in flight, and a few probes


def test_an_outage_longer_than_the_patience_stops_in_one_line():
    with scripted(Shaky(rows=1, seconds=1000)) as server:
        outcomes = ask(["b"] * 8, server.base_url, first=["a"], calls_in_flight=4, outage_patience_seconds=1)
    assert {type(outcome) for outcome in outcomes[1:]} == {UnusableEndpoint}
    assert "status 503: down for a moment It has not answered for 1 s (outage_patience_seconds)" in str(outcomes[1])


def test_one_prompt_that_always_fails_is_told_from_an_outage():
    def answer(body):
        return (500, {"error": {"message": "crash"}}) if "bad" in prompt_of(body) else (200, chat_reply("Lyon"))

    with scripted(answer) as server:
        outcomes = ask([], server.base_url, first=["good", "bad", "bad", "good"])
    assert [getattr(outcome, "reason", "answered") for outcome in outcomes] == ["answered", "no_reply", "no_reply", "answered"]


def test_a_server_that_is_out_leaves_the_work_to_the_others():
    with scripted(Shaky(rows=5, seconds=1000)) as one, scripted(lambda body: (200, chat_reply("Lyon"))) as two:
        outcomes = ask([f"{n}?" for n in range(80)], [one.base_url, two.base_url], calls_in_flight=4, outage_patience_seconds=1)
    assert texts(outcomes) == ["Lyon"] * 80
