"""Anthropic's messages, asked of a server that takes and refuses requests as their documentation says."""

import asyncio

import pytest
from helpers.anthropic_server import KEY, anthropic, error, message

from refinery.errors import LLMError
from refinery.llms.build import build_llm
from refinery.llms.served.endpoint import EndpointConfig, Reply, UnusableEndpoint
from refinery.llms.served.paid.budget import known_price
from refinery.llms.served.protocols.base import protocol_of
from refinery.llms.served.transport.chat_request import ChatRequest
from refinery.llms.served.transport.client import EndpointClient

USER = ("user", "Where?")
SCHEMA = {"title": "Answer", "type": "object", "properties": {"answer": {"type": "string"}}}


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)


def configured(base_url, **values) -> EndpointConfig:
    return EndpointConfig(**{"protocol": "anthropic_messages", "model": "claude", "base_url": base_url, "max_tries": 2} | values)


def ask(base_url, *messages, schema=None, **values) -> Reply | LLMError:
    async def run() -> Reply | LLMError:
        client = EndpointClient(configured(base_url, **values))
        try:
            return await client.reply(ChatRequest(b"", messages or (USER,), schema))
        except LLMError as fault:
            return fault
        finally:
            await client.close()

    return asyncio.run(run())


def test_a_reply_is_read_with_its_usage():
    with anthropic(lambda body: (200, message("In Lyon."))) as server:
        reply = ask(server.base_url, max_tokens=50)
        assert server.bodies == [
            {"model": "claude", "max_tokens": 50, "temperature": 0.0, "messages": [{"role": "user", "content": "Where?"}]}
        ]
    assert reply == Reply("In Lyon.", "stop", "msg_1", 9, 3, model="claude", max_tokens=50)


def test_the_address_may_be_written_as_either_client_has_it():
    with anthropic(lambda body: (200, message())) as server:
        assert [ask(url).text for url in (server.address, f"{server.address}/", server.base_url)] == ["Lyon"] * 3


def test_the_system_prompt_goes_apart_and_empty_turns_are_left_out():
    with anthropic(lambda body: (200, message())) as server:
        reply = ask(server.base_url, ("system", "Be brief."), USER, ("assistant", ""), ("user", "And?"))
        (body,) = server.bodies
    assert isinstance(reply, Reply)
    assert (body["system"], [turn["content"] for turn in body["messages"]]) == ("Be brief.", ["Where?", "And?"])


def test_a_schema_stands_in_the_prompt_from_the_first_request_on():
    with anthropic(lambda body: (200, message('{"answer": "Lyon"}'))) as server:
        assert ask(server.base_url, schema=SCHEMA).text == '{"answer": "Lyon"}'
        (body,) = server.bodies
    assert body["messages"][0]["content"].startswith("Where?\n\nReply with one JSON object of this schema and nothing else:\n{")


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("tool_use", "tool_calls"),
    ],
)
def test_why_a_reply_ended_is_told_in_our_words(stop_reason, finish_reason):
    with anthropic(lambda body: (200, message("Lyon", stop_reason))) as server:
        assert ask(server.base_url).finish_reason == finish_reason


def test_thinking_is_told_from_text_and_blocks_are_joined():
    blocks = [
        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Ly"},
        {"type": "text", "text": "on"},
    ]
    with anthropic(lambda body: (200, message(content=blocks))) as server:
        reply = ask(server.base_url)
    assert (reply.text, reply.reasoning) == ("Lyon", "Hm.")


def test_cached_tokens_are_tokens_of_the_prompt():
    usage = {"input_tokens": 2, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 400, "output_tokens": 1}
    with anthropic(lambda body: (200, message(usage=usage))) as server:
        assert ask(server.base_url).num_prompt_tokens == 432


def test_a_reply_without_content_refuses_its_own_request():
    with anthropic(lambda body: (200, {"type": "message"})) as server:
        assert str(ask(server.base_url)) == "the reply has no content"


@pytest.mark.parametrize(
    ("status", "kind", "headers"),
    [(429, "rate_limit_error", {"retry-after": "1"}), (529, "overloaded_error", {}), (500, "api_error", {})],
)
def test_what_may_pass_is_asked_again(status, kind, headers):
    answers = iter([(status, error(kind, "later"), headers), (200, message())])
    with anthropic(lambda body: next(answers)) as server:
        assert ask(server.base_url).text == "Lyon"


@pytest.mark.parametrize(
    ("status", "kind", "outcome"),
    [
        (400, "invalid_request_error", UnusableEndpoint),  # as it refuses a tiny request too
        (413, "request_too_large", UnusableEndpoint),
        (402, "billing_error", UnusableEndpoint),
        (403, "permission_error", UnusableEndpoint),
        (404, "not_found_error", UnusableEndpoint),
    ],
)
def test_what_does_not_pass_is_told_in_its_words(status, kind, outcome):
    with anthropic(lambda body: (status, error(kind, "no such luck"))) as server:
        fault = ask(server.base_url)
    assert type(fault) is outcome
    assert f"status {status}: no such luck" in str(fault)


SPENT = error("rate_limit_error", "You have reached your API usage limits.")
SPENT["error"]["details"] = {"error_code": "enforced_spend_limit_reached"}
OWN_LIMIT = error("invalid_request_error", "You have reached your specified workspace API usage limits.")


@pytest.mark.parametrize(("status", "said"), [(429, SPENT), (400, OWN_LIMIT)])
def test_a_spent_budget_stops_at_once(status, said):
    with anthropic(lambda body: (status, said)) as server:
        fault = ask(server.base_url, deadline_seconds=3)
        assert len(server.bodies) == 1
    assert isinstance(fault, UnusableEndpoint)
    assert "The account cannot pay for more requests" in str(fault)


def test_the_error_names_the_variable_that_the_protocol_reads(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with anthropic(lambda body: (200, message())) as server:
        assert "$ANTHROPIC_API_KEY is not set: export the key under this name" in str(ask(server.base_url))


def test_a_decoder_is_served_and_labels_are_read_of_words():
    async def use(llm):
        context = llm.context("Is it relevant?")
        written = await context.generate(max_new_tokens=9, stop_texts=("\n", "END"))
        probs = await context.label_probs(["relevant", "other"])
        await llm.close()
        return written.text, probs

    with anthropic(lambda body: (200, message("relevant\nand more"))) as server:
        assert asyncio.run(use(build_llm(configured(server.base_url)))) == ("relevant", {"relevant": 1.0, "other": 0.0})
        assert [body.get("stop_sequences") for body in server.bodies] == [["END"], None]


def test_a_server_that_is_out_is_probed_by_the_same_protocol():
    answers = iter([(200, message()), *[(529, error("overloaded_error", "Overloaded"))] * 4])

    async def run() -> list[str]:
        client = EndpointClient(configured(server.base_url, max_tries=1))
        try:
            return [(await client.reply(ChatRequest(b"", (USER,)))).text for _ in range(2)]
        finally:
            await client.close()

    with anthropic(lambda body: next(answers, (200, message()))) as server:
        assert asyncio.run(run()) == ["Lyon", "Lyon"]
        assert {"role": "user", "content": "Hi"} in [turn for body in server.bodies for turn in body["messages"]]


def test_without_an_address_it_is_anthropic_at_anthropics_prices():
    pytest.importorskip("genai_prices")
    config = configured(None, model="claude-sonnet-4-5")
    assert protocol_of(config).address(config, None).base == "https://api.anthropic.com/v1"
    assert known_price(config)[0].prompt > 0
