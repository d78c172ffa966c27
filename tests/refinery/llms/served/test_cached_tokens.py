"""Prompt tokens from a provider's cache: read by every protocol, stored, and priced apart from the others."""

import json

import pytest
from helpers.anthropic_server import KEY, anthropic, message
from helpers.endpoint_client import ask
from helpers.scripted_server import chat_reply, scripted
from helpers.wild_endpoints.responses_api import response

from refinery.llms.served.completions.api import CompletionReply
from refinery.llms.served.endpoint import EndpointConfig, Price, Reply
from refinery.llms.served.paid.budget import Budget
from refinery.llms.served.paid.prices import TokenPrices, known_price
from refinery.llms.served.transport.chat_labels import LabelReply
from refinery.llms.served.wire.lenient_json import cached_count

READ = Reply("Lyon", "stop", "r", 1000, 10, num_cached_tokens=900)
FULL = {"prompt": 1.0, "completion": 4.0}


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}}, 8),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 10}}, 0),  # of another count
        ({"prompt_tokens": 9, "prompt_tokens_details": None}, 0),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": "none"}}, 0),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 7, "prompt_cache_miss_tokens": 2}, 7),  # DeepSeek
        ({"prompt_tokens": 9, "cached_tokens": 6}, 6),  # Moonshot
        ({"input_tokens": 9, "input_tokens_details": {"cached_tokens": 5}}, 5),  # Responses
    ],
)
def test_a_cached_count_is_read_in_the_words_of_each_api(usage, cached):
    assert cached_count(usage) == cached


@pytest.mark.parametrize(
    ("protocol", "reply"),
    [
        ("openai_chat", chat_reply("Lyon", usage={"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}})),
        ("openai_responses", response(text="Lyon", usage={"input_tokens": 9, "input_tokens_details": {"cached_tokens": 8}})),
    ],
)
def test_the_protocols_of_openai_count_them(protocol, reply):
    with scripted(lambda body: (200, reply)) as server:
        (told,) = ask(["Where?"], server.base_url, protocol=protocol)
    assert (told.num_prompt_tokens, told.num_cached_tokens) == (9, 8)


def test_anthropic_counts_reads_and_writes_apart(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    usage = {"input_tokens": 2, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 400, "output_tokens": 1}
    with anthropic(lambda body: (200, message(usage=usage))) as server:
        (told,) = ask(["Where?"], server.base_url, protocol="anthropic_messages")
    assert (told.num_prompt_tokens, told.num_cached_tokens, told.num_cache_write_tokens) == (432, 400, 30)


@pytest.mark.parametrize(
    ("of_caches", "nano"),
    [({}, 1_040_000), ({"cached": 0.1}, 230_000), ({"cached": 0}, 140_000)],
)
def test_cached_tokens_cost_their_own_price_if_there_is_one(of_caches, nano):
    assert TokenPrices(Price(**FULL, **of_caches), 1.0).of(READ) == nano


def test_tokens_that_are_written_to_a_cache_cost_more_and_the_worst_case_knows():
    prices, wrote = TokenPrices(Price(**FULL, cache_write=1.25), 1.0), Reply("Lyon", "stop", "r", 1000, 0, num_cache_write_tokens=1000)
    assert prices.of(wrote) == prices.at_most(1000, 0) == 1_250_000


@pytest.mark.parametrize(("of_caches", "in_full"), [({}, 900), ({"cached": 0.1}, 0)])
def test_a_budget_says_how_many_cached_tokens_it_counted_in_full(of_caches, in_full):
    budget = Budget(EndpointConfig(model="m", price=FULL | of_caches), None)
    budget.count_cached(READ)
    assert budget.summary()["num_cached_tokens_in_full"] == in_full


def test_the_price_table_has_prices_of_caches():
    pytest.importorskip("genai_prices")
    mini, _ = known_price(EndpointConfig(model="gpt-4o-mini"))
    assert 0 < mini.cached < mini.prompt
    claude, _ = known_price(EndpointConfig(model="claude-sonnet-4-5", protocol="anthropic_messages"))
    assert claude.cached < claude.prompt < claude.cache_write
    assert known_price(EndpointConfig(model="gpt-3.5-turbo"))[0].cached is None


OLD = ["Lyon", "stop", "r", 1000, 10, "m", 50, 0, "", 0, None]  # a reply before its cached tokens were kept


@pytest.mark.parametrize(
    "reply",
    [
        READ,
        LabelReply("Lyon", "stop", "r", 1000, 10, first_logprobs=(("L", -0.1),), num_cached_tokens=900),
        CompletionReply("Lyon", "stop", "r", 1000, 10, token_ids=[1, 2], num_cached_tokens=900),
    ],
    ids=lambda reply: type(reply).__name__,
)
def test_a_stored_reply_keeps_its_cached_tokens(reply):
    assert type(reply).of_stored(reply.stored()) == reply


def test_replies_that_were_stored_without_the_count_are_still_read():
    old = Reply("Lyon", "stop", "r", 1000, 10, model="m", max_tokens=50)
    assert Reply.of_stored(json.loads(json.dumps(OLD))) == old
    assert LabelReply.of_stored([*OLD, None]) == LabelReply.of(old, None)
    completion = CompletionReply.of_stored([*OLD, [1, 2], [-0.5, -0.5], None, None, None, 7])
    assert (completion.token_ids, completion.num_cached_tokens) == ([1, 2], 7)
