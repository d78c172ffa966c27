"""Requests that one teacher does not answer and the next one does, with real servers."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.scripted_server import chat_reply, prompt_of, scripted

from distill.__main__ import main
from refinery.contract.records import Decomposition, read_records

PROJECT = Path(__file__).parents[2]
ERROR = {"error": {"message": "the prompt is filtered", "code": "content_filter"}}


def provenances(tmp_path):
    return [row.provenance for row in read_records(tmp_path / "run" / "train.jsonl", Decomposition)]


def with_fallbacks(mock_recipe, first, *others, **values):
    """The recipe of a first teacher `mock` and fallbacks `mock-1`, ...; `teacher` in values is for the first."""
    fallbacks = [{"base_url": server.base_url, "model": f"mock-{number}", "calls_in_flight": 2} for number, server in enumerate(others, 1)]
    return str(mock_recipe(first.address, fallbacks=fallbacks, max_failure_share=1.0, **values))


@pytest.mark.parametrize(
    ("answer", "calls"),
    [
        ((400, ERROR), 4),
        ((200, chat_reply("I'm sorry, I can't help with that.")), 4),
        ((200, chat_reply("", choices=[{"message": {"content": ""}, "finish_reason": "content_filter"}])), 4),
        ((200, chat_reply("", choices=[{"message": {"content": '{"sub_questions": ["Who'}, "finish_reason": "length"}])), 4),
        ((200, chat_reply('{"questions": 3}')), 8),  # with a correction turn
        ((200, chat_reply("")), 4),
    ],
    ids=["status 400", "refused", "filtered", "truncated", "malformed", "empty"],
)
def test_what_the_first_teacher_does_not_answer_goes_to_the_next(mock_recipe, read_metrics, tmp_path, answer, calls):
    good = (200, chat_reply())
    with scripted(lambda body: answer if "film 1" in prompt_of(body) else good) as first, scripted(lambda body: good) as second:
        assert main([with_fallbacks(mock_recipe, first, second, count=13)]) == 0  # films 1, 10, 11 and 12
        assert (len(first.bodies), len(second.bodies)) == (9 + calls, 4)
    made_by = [provenance.made_by for provenance in provenances(tmp_path)]
    assert made_by.count({"teacher": "mock"}) == 9
    assert made_by.count({"fallback_1": "mock-1"}) == 4
    metrics = read_metrics()
    assert (metrics["teacher"]["calls"], metrics["fallback_1"]["calls"]) == (9 + calls, 4)
    assert {provenance.model for provenance in provenances(tmp_path)} == {"mock", "mock-1"}


def test_a_row_that_no_teacher_answers_says_what_each_did(mock_recipe, read_metrics, tmp_path):
    with scripted(lambda body: (400, ERROR)) as first, scripted(lambda body: (200, chat_reply("No idea."))) as second:
        assert main([with_fallbacks(mock_recipe, first, second, count=2)]) == 0
    assert read_metrics()["rejected_by_reason"] == {"malformed": 2}
    assert "(reasons of the teachers, in order: refused, malformed)" in (tmp_path / "run" / "failures.jsonl").read_text()


def test_an_endpoint_that_accepts_nothing_hands_over_in_one_line(mock_recipe, read_metrics, caplog):
    with scripted(lambda body: (401, {"error": {"message": "no key"}})) as first, scripted(lambda body: (200, chat_reply())) as second:
        assert main([with_fallbacks(mock_recipe, first, second, count=30)]) == 0
        assert len(second.bodies) == 30
        assert len(first.bodies) <= 30
    (line,) = [record.getMessage() for record in caplog.records if "cannot be used" in record.getMessage()]
    assert line.startswith("teacher: endpoint http://127.0.0.1")
    assert line.endswith("The run continues with fallback_1 ('mock-1').")
    assert read_metrics()["questions_labelled"] == 30


def test_a_run_ends_in_one_line_once_no_endpoint_accepts_requests(mock_recipe, capsys):
    with scripted(lambda body: (401, {})) as first, scripted(lambda body: (403, {})) as second:
        assert main([with_fallbacks(mock_recipe, first, second, count=5)]) == 2
    assert [line[:6] for line in capsys.readouterr().err.splitlines() if "mock-1') cannot be used" in line] == ["error:"]


def test_a_fallback_that_accepts_nothing_stops_no_row_that_the_first_answers(mock_recipe, read_metrics):
    first_answers = lambda body: (400, ERROR) if "film 3" in prompt_of(body) else (200, chat_reply())  # noqa: E731
    with scripted(first_answers) as first, scripted(lambda body: (401, {})) as second:
        assert main([with_fallbacks(mock_recipe, first, second, count=10)]) == 0
    assert (read_metrics()["questions_labelled"], read_metrics()["rejected_by_reason"]) == (9, {"no_reply": 1})


def test_a_resumed_run_asks_nobody_again(mock_recipe, tmp_path):
    refused = lambda body: (400, ERROR) if "film 1" in prompt_of(body) else (200, chat_reply())  # noqa: E731
    with scripted(refused) as first, scripted(lambda body: (200, chat_reply())) as second:
        recipe = with_fallbacks(mock_recipe, first, second, count=13)
        assert main([recipe, "limit=12"]) == 0
        earlier = provenances(tmp_path)
        assert main([recipe, "--resume"]) == 0
        assert (len(first.bodies), len(second.bodies)) == (13, 4)
    assert [one.request_ids for one in provenances(tmp_path)[:12]] == [one.request_ids for one in earlier]
    assert [one.made_by for one in provenances(tmp_path)[:12]] == [one.made_by for one in earlier]


def test_a_run_that_goes_on_after_the_first_teacher_is_back_keeps_what_the_fallback_answered(mock_recipe, tmp_path):
    with scripted(lambda body: (401, {})) as first, scripted(lambda body: (200, chat_reply())) as second:
        recipe = with_fallbacks(mock_recipe, first, second, count=20)
        assert main([recipe, "limit=10"]) == 0
        first.answer = lambda body: (200, chat_reply())
        before = len(first.bodies)
        assert main([recipe, "--resume"]) == 0
        assert (len(first.bodies) - before, len(second.bodies)) == (10, 10)
    assert [list(one.made_by) for one in provenances(tmp_path)] == [["fallback_1"]] * 10 + [["teacher"]] * 10


def test_a_killed_run_goes_on_without_paying_a_stored_reply_twice(mock_recipe, tmp_path):
    def slow(answer):
        time.sleep(0.03)
        return answer

    refused = lambda body: slow((400, ERROR) if int(prompt_of(body).split("film ")[-1].split("?")[0]) % 2 else (200, chat_reply()))  # noqa: E731
    with scripted(refused) as first, scripted(lambda body: slow((200, chat_reply()))) as second:
        recipe = with_fallbacks(mock_recipe, first, second, count=60, teacher={"calls_in_flight": 2})
        process = subprocess.Popen([sys.executable, "-m", "distill", recipe], cwd=PROJECT)
        while len(second.bodies) < 10 and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert main([recipe, "--resume"]) == 0
        paid = [prompt_of(body) for body in second.bodies]
    assert len(paid) - len(set(paid)) <= 2  # at most those that were open when it was killed
    assert [list(one.made_by) for one in provenances(tmp_path)] == [["teacher"], ["fallback_1"]] * 30


def test_a_run_with_one_teacher_says_nothing_new(mock_recipe, read_metrics, tmp_path):
    with scripted(lambda body: (200, chat_reply())) as server:
        assert main([str(mock_recipe(server.address, count=2))]) == 0
    row = json.loads((tmp_path / "run" / "train.jsonl").read_text().splitlines()[0])
    assert not {"made_by", "votes", "samples"} & row["provenance"].keys()
    assert not {"agreement", "judge", "questions_escalated"} & read_metrics().keys()
