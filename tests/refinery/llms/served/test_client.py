"""What the client of an endpoint does when a real server on loopback answers oddly, refuses, goes away or comes back."""

import asyncio
import itertools
import json
import threading
import time
from contextlib import contextmanager

import openai
import pytest
from helpers.scripted_server import chat_reply, prompt_of, scripted

from refinery.contract.records import Passage, Question
from refinery.errors import LLMError, RetrievalError
from refinery.llms.served.chat_request import ChatRequest
from refinery.llms.served.client import EndpointClient
from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest, Reply, UnusableEndpoint
from refinery.llms.served.protocols.base import protocol_of
from refinery.llms.served.protocols.openai_chat import openai_client
from refinery.retrievers.base import RetrieverConfig
from refinery.retrievers.search.build import build_retriever

SCHEMA = {"title": "Answer", "type": "object", "properties": {"answer": {"type": "string"}}}


def ask(prompts, base_url, *, schema=None, seconds=30.0, first=(), **config) -> list[Reply | LLMError]:
    """The outcomes of requests that are sent at once, after `first` one by one; a traceback of the client is raised."""
    values = {"model": "m", "base_url": base_url, "max_tries": 2} | config

    async def one(chat: EndpointClient, prompt: str) -> Reply | LLMError:
        try:
            return await chat.reply(ChatRequest(b"", (("user", prompt),), schema))
        except LLMError as error:
            return error

    async def run() -> list[Reply | LLMError]:
        chat = EndpointClient(EndpointConfig(**values))
        try:
            async with asyncio.timeout(seconds):
                before = [await one(chat, prompt) for prompt in first]
                return before + await asyncio.gather(*(one(chat, prompt) for prompt in prompts))
        finally:
            await chat.close()

    return asyncio.run(run())


def texts(outcomes):
    return [outcome.text if isinstance(outcome, Reply) else str(outcome) for outcome in outcomes]


# Schemas


@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        (400, {"error": {"message": "response_format is not supported"}}),
        (400, {"error": {"message": "Structured output is not enabled for this model"}}),
        (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "response_format"], "msg": "Extra inputs are not permitted"}]}),
        (500, {"error": {"message": "Guided decoding failed: xgrammar could not compile"}}),
        (500, b"Internal Server Error"),
    ],
)
def test_no_request_is_lost_where_the_server_takes_no_schemas(status, refusal):
    arrived, all_there = itertools.count(1), threading.Event()

    def answer(body):
        if "response_format" not in body:
            return 200, chat_reply("{}")
        if next(arrived) == 32:
            all_there.set()
        all_there.wait(10)  # so many are in flight when the first is refused
        return status, refusal

    with scripted(answer) as server:
        outcomes = ask([f"{n}?" for n in range(64)], server.base_url, schema=SCHEMA, calls_in_flight=32, max_tries=3)
    assert texts(outcomes) == ["{}"] * 64


def test_an_error_that_only_sounds_like_one_of_schemas_does_not_end_their_use():
    def answer(body):
        return (400, {"error": {"message": "bad grammar in the prompt"}}) if "odd" in prompt_of(body) else (200, chat_reply("{}"))

    with scripted(answer) as server:
        outcomes = ask([], server.base_url, schema=SCHEMA, first=["odd", "even", "even"])
        assert ["response_format" in body for body in server.bodies] == [True, False, True, True]
    assert [type(outcome) for outcome in outcomes] == [RefusedRequest, Reply, Reply]


# Money and limits


@pytest.mark.parametrize(
    ("status", "error"),
    [(429, {"message": "You exceeded your current quota.", "code": "insufficient_quota"}), (402, {"message": "Insufficient credits"})],
)
def test_an_account_that_can_pay_for_no_more_stops_at_once(status, error):
    with scripted(lambda body: (status, {"error": error})) as server:
        (outcome,) = ask(["a"], server.base_url, deadline_seconds=3)
        assert len(server.bodies) == 1
    assert isinstance(outcome, UnusableEndpoint)
    assert str(outcome).endswith(f"status {status}: {error['message']} The account cannot pay for more requests: add credit.")


@pytest.mark.parametrize("retry_after", ["0", "-1", "-1e9", "nan", "inf", "1e300", "Wed, 21 Oct 2015 07:28:00 GMT", "soon", "9" * 400])
def test_a_retry_after_is_never_below_our_own_backoff_and_never_without_end(retry_after):
    with scripted(lambda body: (429, {"error": {"message": "slow down"}}, {"Retry-After": retry_after})) as server:
        (outcome,) = ask(["a"], server.base_url, deadline_seconds=1, seconds=6)
        assert len(server.bodies) <= 5
    assert isinstance(outcome, UnusableEndpoint)


# Odd replies


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (chat_reply([{"type": "text", "text": "Ly"}, {"type": "text", "text": "on"}]), "Lyon"),
        (chat_reply([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Lyon"}]), "Lyon"),
        (chat_reply(42), "42"),
        (chat_reply(None), ""),
        (chat_reply("Lyon", choices={"0": {"message": {"content": "Lyon"}}}), "Lyon"),
        (chat_reply("Lyon", choices={"message": {"content": "Lyon"}}), "Lyon"),
        (chat_reply("Lyon", usage={"prompt_tokens": "9", "completion_tokens": 3.0}), "Lyon"),
        (chat_reply("Lyon", error=None), "Lyon"),
    ],
)
def test_an_odd_reply_is_read(reply, text):
    with scripted(lambda body: (200, reply)) as server:
        assert texts(ask(["a"], server.base_url)) == [text]


@pytest.mark.parametrize(
    "usage", ["none", [1], {"prompt_tokens": "many"}, {"prompt_tokens": -7}, {"prompt_tokens": float("nan")}, {"prompt_tokens": [1]}]
)
def test_an_odd_count_of_tokens_is_none(usage):
    with scripted(lambda body: (200, chat_reply("Lyon", usage=usage))) as server:
        (reply,) = ask(["a"], server.base_url)
    assert (reply.text, reply.num_prompt_tokens) == ("Lyon", 0)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (chat_reply({"answer": "Lyon"}), 'the reply has no text: its content is {"answer": "Lyon"}'),
        (chat_reply([["Lyon"]]), 'the reply has no text: its content is [["Lyon"]]'),
        (chat_reply(choices=["Lyon"]), "the reply has no choices"),
        (chat_reply(choices={}), "the reply has no choices"),
        ("Lyon", "the reply has no choices"),
        (
            {"error": {"message": "This model is\nbeing retired.", "code": "model_retired"}},
            "status 200, but an error: This model is being retired.",
        ),
        ([{"error": "no such region"}], "status 200, but an error: no such region"),
        (
            chat_reply(choices=[{"error": {"message": "the upstream said no", "code": 400}}]),
            "status 200, but an error: the upstream said no",
        ),
    ],
)
def test_a_reply_without_text_refuses_its_own_request_in_one_line(reply, message):
    with scripted(lambda body: (200, reply if prompt_of(body) == "odd" else chat_reply("Lyon"))) as server:
        odd, even = ask([], server.base_url, first=["odd", "even"])
    assert (type(odd), str(odd), even.text) == (RefusedRequest, message, "Lyon")


@pytest.mark.parametrize(
    ("content", "quoted"),
    [
        (b"<!DOCTYPE html>\n<html>\x1b[31mDown</html>", "(malformed): <!DOCTYPE html> <html> [31mDown</html>"),
        (b'data: {"choices": []}\n\ndata: [DONE]\n', '(malformed): data: {"choices": []} data: [DONE]'),
        (b"[" * 100_000, "(nested too deep): [[["),
    ],
)
def test_what_is_no_json_is_quoted_in_one_line(content, quoted):
    with scripted(lambda body: (200, content if prompt_of(body) == "odd" else chat_reply("Lyon"))) as server:
        _, odd = ask([], server.base_url, first=["even", "odd"])
    assert isinstance(odd, RefusedRequest)
    assert f"the reply is not JSON {quoted}" in str(odd)
    assert len(str(odd).splitlines()) == 1


# Who is refused


def test_a_moderated_prompt_is_refused_alone_also_as_the_first():
    def answer(body):
        return (403, {"error": {"message": "flagged"}}) if "bad" in prompt_of(body) else (200, chat_reply("Lyon"))

    with scripted(answer) as server:
        outcomes = ask([], server.base_url, first=["bad", "good", "bad", "good"])
    assert texts(outcomes) == ["status 403: flagged", "Lyon"] * 2


def test_a_key_that_may_do_nothing_stops_the_run():
    with scripted(lambda body: (403, {"error": {"message": "no access"}})) as server:
        assert [type(outcome) for outcome in ask(["a"], server.base_url)] == [UnusableEndpoint]


def test_a_server_that_refuses_the_key_leaves_the_work_to_the_others():
    with scripted(lambda body: (401, {"error": {"message": "no"}})) as one, scripted(lambda body: (200, chat_reply("Lyon"))) as two:
        assert texts(ask(["a"] * 20, [one.base_url, two.base_url], calls_in_flight=4)) == ["Lyon"] * 20
        assert len(one.bodies) <= 4


@contextmanager
def moved():
    """A server that redirects to another, and the other."""
    with scripted(lambda body: (200, chat_reply("another host's label"))) as other:
        to = {"Location": f"http://user:word@127.0.0.1:{other.server_port}/v1/chat/completions?sig=1"}
        with scripted(lambda body: (307, {}, to)) as server:
            yield server, other


def test_a_redirect_is_not_followed():
    with moved() as (server, other):
        (outcome,) = ask(["a secret"], server.base_url)
        assert (len(server.bodies), other.bodies) == (1, [])
    assert isinstance(outcome, UnusableEndpoint)
    assert "status 307: it redirects to http://127.0.0.1/v1/chat/completions. Redirects are not followed" in str(outcome)


def test_the_client_of_batch_jobs_follows_no_redirect_either():
    with moved() as (server, other):
        client = openai_client(EndpointConfig(model="m"), server.base_url)
        with pytest.raises(openai.APIStatusError):
            asyncio.run(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "a secret"}]))
        assert other.bodies == []


@pytest.mark.parametrize(
    "values", [{}, {"base_url": "http://127.0.0.1:8000/v1/"}, {"azure_api_version": "1", "base_url": "https://x.test/"}]
)
@pytest.mark.parametrize("key", ["sk-of-a-test", ""])
def test_requests_go_where_the_official_client_sends_them(monkeypatch, values, key):
    for name, value in {"OPENAI_API_KEY": key, "OPENAI_ORG_ID": "org-1", "OPENAI_PROJECT_ID": "proj_1"}.items():
        monkeypatch.setenv(name, value)
    config = EndpointConfig(model="m", **values)
    ours, official = protocol_of(config).address(config, config.base_urls[0]), openai_client(config, config.base_urls[0])
    assert f"{ours.base}/" == str(official.base_url)
    sent = ours.headers.get("Authorization") or ours.headers.get("api-key")
    assert sent == ((official.api_key if values.get("azure_api_version") else f"Bearer {key}") if key else None)
    assert values.get("azure_api_version") or ours.headers["OpenAI-Organization"] == official.default_headers["OpenAI-Organization"]


@pytest.mark.parametrize(
    ("name", "options"),
    [("http", {"url": "{}/retrieve", "tries": 1}), ("candidates", {"scoring": "embeddings", "encoder": {"model": "m", "base_url": "{}"}})],
)
def test_searches_follow_no_redirect_either(name, options):
    question = Question(id="q", text="Who?", passages=[Passage(id="p", title="", text="a secret")])
    with moved() as (server, other):
        filled = json.loads(json.dumps(options).replace("{}", server.base_url))
        retriever = build_retriever(RetrieverConfig(name=name, options=filled))
        with pytest.raises(RetrievalError, match="307|Redirect"):
            asyncio.run(retriever.search("Who?", k=1, question=question))
        assert (len(server.bodies), other.bodies) == (1, [])


@pytest.mark.parametrize(("status", "words"), [(401, "$NO_SUCH_KEY is not set"), (404, "base_url has no /v1: try http://127.0.0.1:")])
def test_the_error_says_what_to_do(status, words):
    with scripted(lambda body: (status, {"error": {"message": "no"}})) as server:
        (outcome,) = ask(["a"], server.base_url.removesuffix("/v1"), api_key_env="NO_SUCH_KEY")
    assert words in str(outcome)


def test_an_endpoint_that_is_not_there_is_told_as_such():
    (outcome,) = ask(["a"], "http://127.0.0.1:9/v1", max_tries=1)
    assert "Connection error. Is a server running there? Start it, or correct base_url." in str(outcome)


# Outages


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
