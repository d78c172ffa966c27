"""What a server of a decoder does not take: a request, a key."""

import re
import socket

import openai
import pytest
from helpers.chat_client import KEY, ask

from refinery.runtime.http_checks import Guard


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"model": "gpt-4"}, openai.NotFoundError, "no model 'gpt-4' here. Use 'rag'"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"messages": [{"role": "user", "content": "  "}]}, openai.BadRequestError, "not blank"),
        ({"messages": [{"role": "assistant", "content": "Hello."}]}, openai.BadRequestError, "must be from the user"),
        ({"n": 2}, openai.BadRequestError, "n: is not supported, because a request gets one answer. Leave it out, or set it to 1."),
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
        (b" " * (64 << 20) + b"{}", {}, 413),
        (b'{"model": "rag", "messages": [{"role": "user", "content": "%s"}]}' % (b"a" * ((1 << 20) + 1)), {}, 413),
        (b"{}", {"Host": "evil.example"}, 400),
    ],
)
def test_a_request_that_is_none_is_refused(pipeline, served, body, headers, status):
    client = served(pipeline, guard=Guard(hosts=("127.0.0.1",)))
    reply = client._client.post(f"{client.base_url}chat/completions", content=body, headers={"Content-Type": "application/json"} | headers)
    assert reply.status_code == status


def test_a_request_that_never_ends_is_given_up(pipeline, served, monkeypatch):
    monkeypatch.setattr("refinery.runtime.http_checks.BODY_SECONDS", 0.1)
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
