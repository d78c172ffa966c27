"""A distill run whose teacher speaks another protocol."""

import json

import pytest
from helpers.anthropic_server import KEY, anthropic, error, message

from distill.__main__ import main

REPLY = '{"sub_questions": ["Who directed it?", "Where was #1 born?"]}'
TEACHER = {"protocol": "anthropic_messages", "model": "claude", "price": {"prompt": 3.0, "completion": 15.0}}


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)


def test_a_run_is_labelled_and_paid_through_anthropics_messages(mock_recipe, read_metrics):
    answers = iter([(429, error("rate_limit_error", "slow down"), {"retry-after": "0"}), (529, error("overloaded_error", "Overloaded"))])
    with anthropic(lambda body: next(answers, (200, message(REPLY)))) as server:
        assert main([str(mock_recipe(server.address, count=20, teacher=TEACHER))]) == 0
        assert len(server.bodies) == 20 + 2
    metrics = read_metrics()
    assert (metrics["questions_labelled"], metrics["teacher"]["replies_read_as"]) == (20, {"object": 20})
    assert metrics["teacher"]["cost_usd"] == 20 * (9 * 3e-6 + 3 * 15e-6)


def test_a_withheld_reply_rejects_its_row(mock_recipe, tmp_path):
    def answer(body):
        return 200, message("", "refusal") if "film 0?" in body["messages"][0]["content"] else message(REPLY)

    with anthropic(answer) as server:
        assert main([str(mock_recipe(server.address, count=10, teacher=TEACHER))]) == 0
    (failure,) = map(json.loads, (tmp_path / "run" / "failures.jsonl").read_text().splitlines())
    assert (failure["question_id"], failure["reason"]) == ("q0", "refused")


def test_batch_jobs_are_refused_in_one_line(mock_recipe, capsys):
    assert main([str(mock_recipe("http://127.0.0.1:1", teacher=TEACHER, transport="batch"))]) == 2
    assert "transport: protocol 'anthropic_messages' does not support OpenAI's Batch jobs. Set it to live." in capsys.readouterr().err
