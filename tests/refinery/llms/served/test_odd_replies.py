"""What the client of an endpoint makes of odd replies from a real server on loopback."""

import pytest
from helpers.endpoint_client import ask, texts
from helpers.scripted_server import chat_reply, prompt_of, scripted

from refinery.llms.served.endpoint import RefusedRequest


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
        (b"<!DOCTYPE html>\n<html>\x1b[31mDown</html>", "(malformed): a web page ('[31mDown')"),
        (b"choices: none\n\nDone\n", "(malformed): choices: none Done"),
        (b"[" * 100_000, "(nested too deep): [[["),
    ],
)
def test_what_is_no_json_is_quoted_in_one_line(content, quoted):
    with scripted(lambda body: (200, content if prompt_of(body) == "odd" else chat_reply("Lyon"))) as server:
        _, odd = ask([], server.base_url, first=["even", "odd"])
    assert isinstance(odd, RefusedRequest)
    assert f"the reply is not JSON {quoted}" in str(odd)
    assert len(str(odd).splitlines()) == 1


USED = {"prompt_tokens": 9, "completion_tokens": 0}
FAULTS = {
    "no choices": chat_reply(choices=None),
    "an empty list of choices": chat_reply(choices=[]),
    "an empty text": chat_reply("", usage=USED),
    "neither a text nor a count": chat_reply(None, usage=None),
    "an abort": chat_reply(choices=[{"message": {"content": "Ly"}, "finish_reason": "abort"}]),
    "a busy server": chat_reply(choices=[{"message": {"content": ""}, "finish_reason": "insufficient_system_resource"}]),
    "an error": chat_reply(choices=[{"message": {"content": "Ly"}, "finish_reason": "error"}]),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_with_status_200_is_asked_again_and_no_reply_if_it_stays(fault):
    answers = iter([chat_reply("Lyon"), fault, chat_reply("Lyon")])
    with scripted(lambda body: (200, next(answers, fault))) as server:
        outcomes = ask([], server.base_url, first=["a", "b", "c"])
        assert [prompt_of(body) for body in server.bodies if prompt_of(body) != "Hi"] == ["a", "b", "b", "c", "c"]
    assert texts(outcomes[:2]) == ["Lyon", "Lyon"]
    assert (type(outcomes[2]), outcomes[2].reason) == (RefusedRequest, "no_reply")


@pytest.mark.parametrize(
    ("word", "finish_reason"),
    [
        (None, "stop"),
        ("STOP", "stop"),
        ("eos", "stop"),
        ("MAX_TOKENS", "length"),
        ("content_filter: PROHIBITED_CONTENT", "content_filter"),
        ("sensitive", "content_filter"),
        ("function_call", "tool_calls"),
    ],
)
def test_why_a_reply_ended_is_told_in_one_word(word, finish_reason):
    reply = chat_reply(choices=[{"message": {"content": "Lyon"}, "finish_reason": word}])
    with scripted(lambda body: (200, reply)) as server:
        assert [one.finish_reason for one in ask(["a"], server.base_url)] == [finish_reason]


@pytest.mark.parametrize(
    "choice",
    [
        {"message": {"content": ""}, "finish_reason": "content_filter"},
        {"message": {"content": "", "refusal": "No."}, "finish_reason": "stop"},
        {"message": {"content": ""}, "finish_reason": "length"},
        {"message": {"content": "", "reasoning_content": "Hm."}, "finish_reason": "stop"},
    ],
)
def test_a_reply_that_is_withheld_cut_or_only_reasoning_is_asked_for_once(choice):
    with scripted(lambda body: (200, chat_reply(choices=[choice], usage=USED))) as server:
        ask(["a"], server.base_url)
        assert len(server.bodies) == 1
