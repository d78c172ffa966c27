"""A decoder served over HTTP, asked by the real `openai` client."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
import yaml
from helpers.chat_client import FILMS, KEY, PASSAGES, ask, slow_decoder, wait_for

from infer.pipeline import Pipeline
from infer.recipe import PipelineRecipe
from refinery.cli import main
from refinery.contract.records import write_records
from refinery.errors import LLMError, RecordError
from refinery.llms.fake import FakeLLM
from refinery.llms.served.endpoint import ServedModelConfig
from refinery.runtime.serving import Guard


def test_an_answer_comes_with_its_trace_and_what_it_cost(pipeline, served):
    reply = ask(served(pipeline))
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason, reply.model) == ("Cleo Marn", "stop", "rag")
    assert [step["name"] for step in reply.refinery["trace"]] == ["retrieve", "answer_with_passages"]
    assert reply.refinery["trace"][0]["passages"][0]["title"] == "Cedar Falls"
    assert reply.usage.completion_tokens == reply.refinery["cost"]["decode_tokens"] > 0
    assert reply.refinery["ignored"] == []


def test_a_stream_opens_at_once_and_ends_with_trace_and_usage(pipeline, served):
    chunks = list(ask(served(pipeline), stream=True, stream_options={"include_usage": True}))
    *spoken, end, usage = chunks
    assert [chunk.choices[0].delta.content for chunk in spoken] == ["", None, None, "Cleo Marn"]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert (end.choices[0].delta.content, end.choices[0].finish_reason) == (None, "stop")
    assert end.refinery["trace"][0]["name"] == "retrieve"
    assert (usage.choices, usage.usage.total_tokens) == ([], usage.usage.prompt_tokens + usage.usage.completion_tokens)
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_long_silence_is_filled_so_that_the_stream_stays_open(pipeline, served, monkeypatch):
    monkeypatch.setattr("infer.serving.stream._KEEP_ALIVE_SECONDS", 0.01)
    pipeline.decoder = slow_decoder(lambda question, session: asyncio.sleep(0.1))
    with served(pipeline).chat.completions.with_streaming_response.create(
        model="rag", messages=[{"role": "user", "content": "Who?"}], stream=True
    ) as response:
        lines = [line for line in response.iter_lines() if line]
    assert ": thinking" in lines
    assert lines[-1] == "data: [DONE]"


def test_the_decoder_is_the_one_model(pipeline, served):
    client = served(pipeline)
    assert [model.id for model in client.models.list()] == ["rag"]
    assert client.models.retrieve("rag").owned_by == "refinery"
    with pytest.raises(openai.NotFoundError, match="no model 'gpt' here. Use 'rag'"):
        client.models.retrieve("gpt")


def test_what_has_no_effect_is_said(pipeline, served):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Who made Cedar Falls?"}]},
    ]
    reply = ask(served(pipeline), messages=messages, temperature=0.7, tools=[])
    assert reply.choices[0].message.content == "Cleo Marn"
    assert reply.refinery["ignored"] == ["temperature", "system messages"]


LIMITS = [
    ({"max_tokens": 1}, "Cleo", "length"),
    ({"max_completion_tokens": 2}, "Cleo Marn", "stop"),
    ({"max_tokens": 900}, "Cleo Marn", "stop"),
    ({}, "Cleo Marn", "stop"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("asked", "answer", "reason"), LIMITS)
def test_a_clients_limit_cuts_the_answer_and_no_call_on_the_way_to_it(pipeline, served, asked, answer, reason, stream):
    seen = []

    async def note(question, session):
        seen.append(session.max_new_tokens)
        return "Cleo Marn"

    pipeline.decoder = slow_decoder(note)
    reply = ask(served(pipeline), **asked, stream=stream)
    got = [(part.delta.content or "", part.finish_reason) for chunk in reply for part in chunk.choices] if stream else []
    got = got or [(reply.choices[0].message.content, reply.choices[0].finish_reason)]
    assert ("".join(text for text, _ in got), got[-1][1], seen) == (answer, reason, [8])


def test_a_limit_counts_the_served_models_tokens_and_words_where_there_is_no_tokenizer(pipeline, served, tiny_tokenizer):
    async def year(question, session):
        return "in 1930"

    pipeline.decoder = slow_decoder(year)
    pipeline.llm.tokenizer = tiny_tokenizer
    ids = tiny_tokenizer("in 1930", add_special_tokens=False)["input_ids"]
    most = len(ids) - 1
    client = served(pipeline)
    assert ask(client, max_tokens=most).choices[0].message.content == tiny_tokenizer.decode(ids[:most])
    assert ask(client, max_tokens=most + 1).choices[0].message.content == "in 1930"
    without = ServedModelConfig(base_url="http://127.0.0.1:9/v1", model="m")
    pipeline.recipe = pipeline.recipe.model_copy(update={"llm": None, "endpoint": without})
    assert ask(client, max_tokens=1).choices[0].message.content == "in"


CONVERSATION = [
    {"role": "system", "content": "Speak like a pirate."},
    {"role": "user", "content": "Is Amber Road or Cedar Falls by Cleo Marn?"},
    {"role": "assistant", "content": "Cedar Falls"},
    {"role": "user", "content": "Who made the other one?"},
]


class ShortLLM(FakeLLM):
    """Reads no more than 400 words."""

    context_limit = 400


def follows_up(rewritten):
    """A model that rewrites a follow-up as `rewritten`, and answers with the director that it reads of."""
    return lambda text: rewritten if text.endswith("Standalone question:") else re.search(r"by (\w+ \w+)", text)[1]


def test_a_follow_up_is_searched_and_answered_as_what_it_means(pipeline, served):
    pipeline.llm.script = follows_up("Who made Amber Road?\nLast question: Who made it?")
    reply = ask(served(pipeline), messages=CONVERSATION)
    condensed, *asked = pipeline.llm.texts("generate")
    assert "User: Is Amber Road or Cedar Falls by Cleo Marn?\nAssistant: Cedar Falls\nLast question: Who made the other one?\n" in condensed
    assert [step["question"] for step in reply.refinery["trace"]] == ["Who made the other one?", *["Who made Amber Road?"] * 2]
    assert reply.refinery["trace"][0]["text"] == "Who made Amber Road?"
    assert (reply.refinery["cost"]["calls"], len(asked)) == (2, 1)
    assert not any("pirate" in call.text for call in pipeline.llm.calls)


@pytest.mark.parametrize("messages", [CONVERSATION[-1:], [CONVERSATION[0], CONVERSATION[-1]], [CONVERSATION[2], CONVERSATION[-1]]])
def test_the_first_question_of_a_conversation_is_asked_as_it_is(pipeline, served, messages):
    pipeline.llm.script = lambda text: "Cleo Marn"
    assert [step["name"] for step in ask(served(pipeline), messages=messages).refinery["trace"]] == ["retrieve", "answer_with_passages"]


def test_a_follow_up_that_the_model_does_not_rewrite_is_asked_as_it_is(pipeline, served):
    pipeline.llm.script = follows_up("")
    trace = ask(served(pipeline), messages=[*CONVERSATION[:3], {"role": "user", "content": "Who made Cedar Falls?"}]).refinery["trace"]
    assert [step["name"] for step in trace] == ["condense", "fault", "retrieve", "answer_with_passages"]
    assert trace[-1]["question"] == "Who made Cedar Falls?"


def test_a_conversation_longer_than_the_models_context_keeps_its_end(pipeline, served):
    pipeline.llm = ShortLLM(follows_up("Who made Cedar Falls?"))
    long = [{"role": role, "content": f"{role} {number} " + "so " * 99} for number in range(40) for role in ("user", "assistant")]
    last = {"role": "user", "content": "And who made Cedar Falls?"}
    assert ask(served(pipeline), messages=[*long, last]).choices[0].message.content == "Cleo Marn"
    condensed = pipeline.llm.texts("generate")[0]
    assert len(condensed.split()) < 400
    assert "assistant 39" in condensed
    assert "assistant 9 " not in condensed


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"model": "gpt-4"}, openai.NotFoundError, "no model 'gpt-4' here. Use 'rag'"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"messages": [{"role": "user", "content": "  "}]}, openai.BadRequestError, "not blank"),
        ({"messages": [{"role": "assistant", "content": "Hello."}]}, openai.BadRequestError, "must be from the user"),
        ({"n": 2}, openai.BadRequestError, "n: Input should be 1"),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens"),
        ({"logprobs": True}, openai.BadRequestError, "logprobs: is not supported, because a decoder answers in plain text"),
        ({"response_format": {"type": "json_object"}}, openai.BadRequestError, "response_format"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_the_key_at_fault(pipeline, served, values, error, message):
    with pytest.raises(error, match=re.escape(message)) as raised:
        ask(served(pipeline), **values)
    assert raised.value.body["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[1]", {}, 400),
        (b'{"model": "rag", "messages": [{"role": "user", "content": "\\ud800"}]}', {}, 400),
        (b"\xff\xfe", {}, 400),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b" " * (1 << 20) + b"{}", {}, 413),
        (b"{}", {"Host": "evil.example"}, 400),
    ],
)
def test_a_request_that_is_none_is_refused(pipeline, served, body, headers, status):
    client = served(pipeline, guard=Guard(hosts=("127.0.0.1",)))
    reply = client._client.post(f"{client.base_url}chat/completions", content=body, headers={"Content-Type": "application/json"} | headers)
    assert reply.status_code == status


def test_a_request_that_never_ends_is_given_up(pipeline, served, monkeypatch):
    monkeypatch.setattr("refinery.runtime.serving.BODY_SECONDS", 0.1)
    url = served(pipeline).base_url
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    with socket.create_connection((url.host, url.port), timeout=20) as connection:
        connection.sendall(head.encode())
        assert connection.recv(99).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("path", ["models", "chat/completions", "nowhere"])
def test_every_error_has_openais_form(pipeline, served, path):
    client = served(pipeline)
    reply = client._client.put(f"{client.base_url}{path}", content=b"{}")
    assert reply.status_code in (404, 405)
    assert set(reply.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("given", ["Bearer sk-wrong", f"Bearer {KEY}x", KEY, "Bearer ключ", None])
def test_another_key_opens_nothing(pipeline, served, given):
    client = served(pipeline, guard=Guard(KEY))
    assert ask(client)
    headers = {"Authorization": given.encode()} if given else {}
    for path, method in (("models", "GET"), ("chat/completions", "POST")):
        reply = client._client.request(method, f"{client.base_url}{path}", headers=headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")


def test_questions_are_answered_together_and_one_too_many_is_sent_away(pipeline, served):
    arrived, release = [], threading.Event()

    async def together(question, session):
        arrived.append(question.id)
        while not release.is_set():
            await asyncio.sleep(0.01)

    pipeline.decoder = slow_decoder(together)
    client = served(pipeline)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, client) for _ in range(8)]
        wait_for(lambda: len(arrived) == 8)
        with pytest.raises(openai.RateLimitError, match="8 questions are being answered") as refused:
            ask(client)
        assert refused.value.response.headers["retry-after"] == "1"
        assert client.models.list().data  # who only looks is let in
        release.set()
        assert {future.result().choices[0].message.content for future in asked} == {"done"}
    assert ask(client)  # there is room again


@pytest.mark.parametrize("stream", [False, True])
def test_nobody_computes_on_for_a_client_that_has_hung_up(pipeline, served, stream):
    seen = []

    async def forever(question, session):
        seen.append("begun")
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("ended")

    pipeline.decoder = slow_decoder(forever)
    client = served(pipeline).with_options(timeout=0.5)
    with pytest.raises((openai.APITimeoutError, openai.APIConnectionError, TimeoutError)):
        list(ask(client, stream=stream))
    wait_for(lambda: seen == ["begun", "ended"])


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (RecordError("the question brings no passages"), openai.BadRequestError, "brings no passages"),
        (LLMError("the model's endpoint is down"), openai.InternalServerError, "endpoint is down"),
        (RuntimeError("/secret/path"), openai.InternalServerError, "the decoder failed"),
        (None, openai.InternalServerError, "no answer within 1 seconds"),
    ],
)
def test_a_decoder_that_fails_is_an_error_of_its_own_request(pipeline, served, fault, error, message):
    async def fail(question, session):
        if fault is None:
            await asyncio.sleep(60)
        raise fault

    good, pipeline.decoder = pipeline.decoder, slow_decoder(fail)
    client = served(pipeline, timeout_seconds=30 if fault else 1)
    with pytest.raises(error, match=message) as raised:
        ask(client)
    assert "secret" not in str(raised.value)
    with pytest.raises(openai.APIError, match=message):
        list(ask(client, stream=True))
    pipeline.decoder = good
    assert ask(client).choices[0].message.content == "Cleo Marn"


def test_a_checkpoint_answers_many_at_once_as_it_answers_one(tmp_path, tiny_bases, served):
    write_records(tmp_path / "passages.jsonl", PASSAGES)
    values = {"decoder": "rag", "llm": {"base": str(tiny_bases["tied"])}}
    pipeline = Pipeline(
        PipelineRecipe.model_validate(values | {"retriever": {"passages": tmp_path / "passages.jsonl"}, "max_new_tokens": 6})
    )
    pipeline.load()
    client = served(pipeline)
    questions = [f"Who made {film}?" for film in FILMS]
    alone = [ask(client, question).choices[0].message.content for question in questions]
    with ThreadPoolExecutor(4) as pool:
        together = [reply.choices[0].message.content for reply in pool.map(lambda question: ask(client, question), questions)]
    assert together == alone


SLOW = """
import asyncio
from pathlib import Path
from infer.decoders.base import Decoder
from refinery.runtime.recipe import Recipe

async def decode(question, tools, options):
    Path(__file__).with_name("asked").touch()
    await asyncio.sleep(1.5)
    return tools.prediction("late " + question.text)

decoder = Decoder(decode, Recipe)
"""


@pytest.fixture
def process(tmp_path):
    """`refinery serve` of a slow decoder as a process, and its address; nothing is loaded, since its endpoint is never asked."""
    (tmp_path / "slow.py").write_text(SLOW)
    recipe = {"decoder": "slow:decoder", "name": "slow", "questions": ["q"], "output_dir": str(tmp_path / "run")}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | {"endpoint": {"base_url": "http://127.0.0.1:9/v1", "model": "m"}}))
    command = [
        sys.executable,
        "-m",
        "refinery.cli",
        "serve",
        str(tmp_path / "recipe.yaml"),
        "--port",
        "0",
        "--api-key-env",
        "A_KEY",
    ]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "A_KEY": KEY, "OPENAI_API_KEY": "unused"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as started:
        line = started.stdout.readline()
        assert line.startswith("slow at http://127.0.0.1:"), started.stderr.read()
        yield started, line.split()[-1]
        started.kill()


def test_sigterm_lets_a_question_in_flight_be_answered_and_ends_cleanly(process, tmp_path):
    started, url = process
    client = openai.OpenAI(base_url=url, api_key=KEY, max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="another").models.list()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, client, "Who?", model="slow")
        wait_for((tmp_path / "asked").exists)
        started.send_signal(signal.SIGTERM)
        assert asked.result().choices[0].message.content == "late Who?"
    output, errors = started.communicate(timeout=30)
    assert started.returncode == 0
    assert KEY not in output + errors
    with pytest.raises(openai.APIConnectionError):
        client.models.list()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "others can reach this"),
        (["--api-key-env", "NOT_SET_ANYWHERE"], "this variable is not set"),
        (["--api-key-env", "sk-abcdefgh12345678"], "--api-key-env: is not the name of an environment variable"),
        (["--port", "taken"], "cannot bind to this address"),
    ],
)
def test_what_cannot_be_served_is_one_line(tmp_path, capsys, arguments, message):
    (tmp_path / "r.yaml").write_text(
        yaml.safe_dump({"decoder": "direct", "questions": ["q"], "output_dir": "run", "llm": {"base": "none"}})
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments = [str(taken.getsockname()[1]) if argument == "taken" else argument for argument in arguments]
        assert main(["serve", str(tmp_path / "r.yaml"), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_reply_is_json_that_any_client_reads(pipeline, served):
    pipeline.llm.token_logprob = float("-inf")
    client = served(pipeline)
    body = {"model": "rag", "messages": [{"role": "user", "content": "Who made Cedar Falls?"}]}
    text = client._client.post(f"{client.base_url}chat/completions", json=body).text
    assert json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
