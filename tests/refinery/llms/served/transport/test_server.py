"""Whose a refusal is: of one prompt, or of a server that refuses every request, with real servers on loopback."""

import time

import pytest
from helpers.endpoint_client import ask, texts
from helpers.scripted_server import chat_reply, prompt_of, scripted

from refinery.llms.served.endpoint import RefusedRequest, Reply, UnusableEndpoint

OK = (200, chat_reply("Lyon"))
BALANCE = {"code": 30001, "message": "Sorry, your account balance is insufficient", "data": None}
FILTERED = {"message": "The prompt triggered the content management policy."}


def error(message, **values):
    return {"error": {"message": message} | values}


def is_tiny(body):
    return prompt_of(body) == "Hi"


def runs_dry(answered, refusal):
    """Answers so many prompts, and then refuses everything."""
    left = iter(range(answered))

    def answer(body):
        return OK if next(left, None) is not None else refusal

    return answer


@pytest.mark.parametrize(
    "refusal",
    [
        (400, error("The tenant may not use this any more.")),
        (403, error("Key limit exceeded (total limit).", code=403)),
        (403, BALANCE),
        (405, error("closed")),
        (200, error("no more for you")),
    ],
)
def test_a_server_that_refuses_everything_after_it_has_answered_is_unusable_from_the_first_refusal_on(refusal):
    with scripted(runs_dry(2, refusal)) as server:
        outcomes = ask([], server.base_url, first=["a", "b", "c"])
        assert len(server.bodies) == 3 + 2
    assert [type(outcome) for outcome in outcomes] == [Reply, Reply, UnusableEndpoint]
    assert "has answered before and now refuses every request, even a tiny one: status" in str(outcomes[2])
    assert str(outcomes[2]).endswith(
        "The account or the key seems to be used up. Replies so far are stored: add credit or raise the limit, then --resume."
    )


def test_the_words_of_a_refusal_may_name_each_request_in_another_way():
    numbers = iter(range(100))
    refused = lambda: (403, error(f"Denied. Request-id: req_{next(numbers)}xYzQ, balance $-0.{next(numbers)}"))  # noqa: E731
    with scripted(lambda body: OK if prompt_of(body) == "a" else refused()) as server:
        assert [type(outcome) for outcome in ask([], server.base_url, first=["a", "b"])] == [Reply, UnusableEndpoint]


@pytest.mark.parametrize("status", [400, 403])
def test_a_filter_that_refuses_many_in_the_same_words_refuses_them_alone(status):
    with scripted(lambda body: (status, {"error": FILTERED}) if "bad" in prompt_of(body) else OK) as server:
        outcomes = ask(["bad"] * 20, server.base_url, first=["good", "bad", "good"], calls_in_flight=20)
        assert sum(map(is_tiny, server.bodies)) <= 1 + 20
    assert [type(outcome) for outcome in outcomes] == [Reply, RefusedRequest, Reply] + [RefusedRequest] * 20


def test_refusals_that_arrive_together_share_a_tiny_request():
    def answer(body):
        if not is_tiny(body):
            return 400, {"error": FILTERED}
        time.sleep(0.2)  # while the other refusals arrive
        return OK

    with scripted(answer) as server:
        ask(["bad"] * 50, server.base_url, calls_in_flight=50)
        assert 1 <= sum(map(is_tiny, server.bodies)) < 25


@pytest.mark.parametrize("status", [400, 403])
@pytest.mark.parametrize("code", ["content_filter", "content_policy_violation"])
def test_a_refusal_that_names_its_filter_costs_no_other_request(status, code):
    with scripted(lambda body: (status, error("no", code=code))) as server:
        assert [type(outcome) for outcome in ask(["a", "b"], server.base_url)] == [RefusedRequest] * 2
        assert len(server.bodies) == 2


def test_a_tiny_request_that_is_refused_for_its_size_says_nothing_of_the_others():
    def answer(body):
        if body["max_tokens"] < 16:
            return 400, error("max_tokens: must be at least 16")
        return (400, error("The prompt is too long.")) if prompt_of(body) == "long" else OK

    with scripted(answer) as server:
        outcomes = ask([], server.base_url, first=["a", "long", "a"])
    assert texts(outcomes) == ["Lyon", "status 400: The prompt is too long.", "Lyon"]


def test_a_tiny_request_that_is_refused_by_chance_does_not_stop_the_run():
    numbers = iter(range(1, 100))
    with scripted(lambda body: OK if next(numbers) % 4 in (1, 2) else (400, error("fault"))) as server:
        outcomes = ask([], server.base_url, first=["a", "b", "c", "d"])
        assert [is_tiny(body) for body in server.bodies] == [False] * 3 + [True] * 2 + [False]
    assert [type(outcome) for outcome in outcomes] == [Reply, Reply, RefusedRequest, Reply]


def test_a_refusal_is_asked_again_while_a_tiny_request_cannot_tell_whose_it_is():
    busy = iter([(429, error("slow down"))])
    with scripted(lambda body: next(busy, OK) if is_tiny(body) else (400, {"error": FILTERED})) as server:
        (outcome,) = ask(["bad"], server.base_url, max_tries=3)
        assert [is_tiny(body) for body in server.bodies] == [False, True, False, True]
    assert type(outcome) is RefusedRequest


def test_the_other_servers_continue_without_one_that_runs_dry():
    with scripted(runs_dry(3, (403, BALANCE))) as dry, scripted(lambda body: OK) as other:
        assert texts(ask(["a"] * 20, [dry.base_url, other.base_url], calls_in_flight=2)) == ["Lyon"] * 20


@pytest.mark.parametrize(
    ("status", "values"),
    [
        (400, {"type": "budget_exceeded", "code": "400"}),
        (403, {"type": "new_api_error", "code": "insufficient_user_quota"}),
        (403, {"type": "one_api_error", "code": "pre_consume_token_quota_failed"}),
    ],
)
def test_an_account_that_can_pay_for_a_tiny_request_only_is_used_up(status, values):
    with scripted(lambda body: OK if is_tiny(body) else (status, error("no quota", **values))) as server:
        (outcome,) = ask(["a"], server.base_url)
    assert isinstance(outcome, UnusableEndpoint)
    assert str(outcome).endswith("The account cannot pay for more requests: add credit.")
