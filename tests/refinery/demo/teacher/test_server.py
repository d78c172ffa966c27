"""How the demo's teacher serves and misbehaves, over real HTTP."""

import asyncio
import json
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from helpers.demo_teacher import WORLDS, decomposition_prompts, rejection, with_teacher

from distill.tasks.decomposition import Reply as Decomposition
from distill.teacher.teacher import RequestLog, Teacher
from refinery.demo.teacher.replies import REFUSAL, serve
from refinery.demo.teacher.server import MODEL, ChatServer, Faults, serving
from refinery.errors import LLMError


def test_the_openai_client_reads_every_field_of_a_reply(server: ChatServer) -> None:
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        messages: Any = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        ]
        first, second = (client.chat.completions.create(model="any-name", messages=messages) for _ in range(2))
    assert first.id != second.id
    assert first.usage is not None
    assert (first.model, first.usage.prompt_tokens, first.usage.completion_tokens) == (
        "any-name",
        3,
        len(REFUSAL.split()),
    )
    assert (first.choices[0].message.content, first.choices[0].finish_reason) == (REFUSAL, "stop")


def test_models_are_listed(server: ChatServer) -> None:
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == [MODEL]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/chat/completions", "{", 400, "body: Invalid JSON"),
        ("/v1/chat/completions", '{"model": "m"}', 400, "messages: Field required"),
        (
            "/v1/chat/completions",
            '{"model": "m", "messages": [], "stream": true}',
            400,
            "stream: this server sends whole replies only",
        ),
        ("/v1/embeddings", "{}", 404, "no POST /v1/embeddings"),
    ],
)
def test_a_bad_request_gets_an_error_and_keeps_the_connection(server: ChatServer, path: str, body: str, status: int, message: str) -> None:
    connection = HTTPConnection(urlsplit(server.base_url).netloc, timeout=60)
    for _ in range(2):  # the second goes out on the same connection
        connection.request("POST", path, body)
        response = connection.getresponse()
        assert (response.status, json.load(response)["error"]["message"].startswith(message)) == (status, True)
    connection.close()


def test_32_requests_are_answered_side_by_side(tmp_path: Path) -> None:
    everyone = Barrier(32)  # no reply leaves before 32 requests are in

    def answer(prompt: str) -> str:
        everyone.wait(timeout=60)
        return '{"sub_questions": ["?"]}'

    async def use(teacher: Teacher) -> None:
        await asyncio.gather(*(teacher.ask(prompt, Decomposition, RequestLog()) for prompt in decomposition_prompts(64)))

    with serving(answer) as server:
        with_teacher(server, tmp_path, use, calls_in_flight=32)
    assert (server.requests, server.peak_in_flight) == (64, 32)


def test_a_stopped_server_answers_no_one_on_an_open_connection() -> None:
    with serve(WORLDS) as server:
        connection = HTTPConnection(urlsplit(server.base_url).netloc, timeout=60)
        connection.request("GET", "/v1/models")
        connection.getresponse().read()
        assert connection.sock is not None
    assert connection.sock.recv(1) == b""


def test_the_command_prints_its_base_url_and_takes_faults() -> None:
    command = [sys.executable, "-m", "refinery.demo.teacher.replies", "--seed", "0", "--port", "0", "--refuse-every", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        base_url = process.stdout.readline().strip()
        with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
            completion = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": decomposition_prompts(1)[0]}])
        process.terminate()
    assert completion.choices[0].message.content == "I'm sorry, I can't help with that."


# How it misbehaves


@pytest.mark.parametrize("fault", ["rate_limit_every", "server_error_every"])
def test_an_error_that_passes_is_tried_again_and_counted(tmp_path: Path, fault: str) -> None:
    async def use(teacher: Teacher) -> tuple[int, int]:
        for prompt in decomposition_prompts(3):
            await teacher.ask(prompt, Decomposition, RequestLog())
        return teacher.calls, teacher.transport.retries

    with serve(WORLDS, faults=Faults(**{fault: 3})) as server:
        assert (with_teacher(server, tmp_path, use), server.requests) == ((3, 1), 4)


def test_a_rate_limit_says_when_to_come_back() -> None:
    messages: Any = [{"role": "user", "content": "Hello"}]
    with (
        serve(WORLDS, faults=Faults(rate_limit_every=1)) as server,
        openai.OpenAI(base_url=server.base_url, api_key="none") as client,
    ):
        with pytest.raises(openai.RateLimitError) as caught:
            client.with_options(max_retries=0).chat.completions.create(model=MODEL, messages=messages)
        assert caught.value.response.headers["retry-after"] == "0.05"


def test_an_endpoint_that_never_recovers_cannot_be_used(tmp_path: Path) -> None:
    async def use(teacher: Teacher) -> None:
        with pytest.raises(LLMError, match="cannot be used: status 500"):
            await teacher.ask(decomposition_prompts(1)[0], Decomposition, RequestLog())

    with serve(WORLDS, faults=Faults(server_error_every=1)) as server:
        with_teacher(server, tmp_path, use, max_tries=3)
        assert server.requests == 3 + 1  # a tiny one, which would have told that it is the prompt that fails


def test_requests_above_the_limit_are_sent_again_until_they_fit(tmp_path: Path) -> None:
    async def use(teacher: Teacher) -> tuple[int, bool]:
        await asyncio.gather(*(teacher.ask(prompt, Decomposition, RequestLog()) for prompt in decomposition_prompts(8)))
        return teacher.calls, teacher.transport.retries > 0

    with serve(WORLDS, faults=Faults(max_in_flight=2, slow_seconds=0.05)) as server:
        assert with_teacher(server, tmp_path, use, max_tries=100) == (8, True)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("truncate_every", "truncated"),
        ("refuse_every", "refused"),
        ("bad_request_every", "refused"),
    ],
)
def test_a_spoilt_reply_rejects_its_row_and_no_other(tmp_path: Path, fault: str, reason: str) -> None:
    async def use(teacher: Teacher) -> str:
        first, second, third, fourth = decomposition_prompts(4)
        await teacher.ask(first, Decomposition, RequestLog())
        await teacher.ask(second, Decomposition, RequestLog())
        rejected = await rejection(teacher, third)
        await teacher.ask(fourth, Decomposition, RequestLog())
        return rejected

    with serve(WORLDS, faults=Faults(**{fault: 3})) as server:
        assert with_teacher(server, tmp_path, use) == reason


def test_a_second_teacher_replays_the_store_without_a_call(tmp_path: Path) -> None:
    async def use(teacher: Teacher) -> tuple[list[list[str]], int, int]:
        replies = [await teacher.ask(prompt, Decomposition, RequestLog()) for prompt in decomposition_prompts(4)]
        return [reply.sub_questions for reply in replies], teacher.calls, teacher.hits

    with serve(WORLDS) as server:
        first, calls, hits = with_teacher(server, tmp_path, use)
        assert (calls, hits) == (4, 0)
        assert with_teacher(server, tmp_path, use) == (first, 0, 4)
        assert server.requests == 4
