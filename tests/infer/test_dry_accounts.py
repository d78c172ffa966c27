"""An endpoint of any protocol whose account runs dry in the middle of a run, or that gives its replies up."""

import pytest
import yaml
from helpers.anthropic_server import message
from helpers.scripted_server import chat_reply, scripted

from infer.__main__ import main
from refinery.contract.records import Question, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction

QUESTIONS = [Question(id=f"q{i}", text=f"Who directed film {i}?", answers=["Maria 1"]) for i in range(6)]


@pytest.fixture
def run(tmp_path):
    """Start or resume a run of `direct` over an endpoint; returns the exit code, and the predictions of a finished run."""
    write_records(tmp_path / "questions.jsonl", QUESTIONS)

    def start(*arguments, **endpoint):
        recipe = {"decoder": "direct", "questions": [str(tmp_path / "questions.jsonl")], "output_dir": str(tmp_path / "run")}
        values = {"questions_in_flight": 2, "endpoint": {"model": "m", "max_tries": 2, **endpoint}}
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | values))
        code, predictions = main([str(tmp_path / "recipe.yaml"), *arguments]), tmp_path / "run" / PREDICTIONS_FILE
        return code, list(read_records(predictions, Prediction)) if predictions.exists() else []

    return start


DRY = (403, {"code": 30001, "message": "Sorry, your account balance is insufficient", "data": None})


def dry_after(number, reply):
    """Answers so many requests, and refuses every one after them, unless `filled`."""

    def answer(body):
        answer.left -= not is_tiny(body)
        return (200, reply) if answer.filled or answer.left >= 0 else DRY

    answer.left, answer.filled = number, False
    return answer


def is_tiny(body):
    return len(str(body.get("messages") or body.get("input"))) < 80


PROTOCOLS = {
    "openai_chat": chat_reply("Maria 1"),
    "openai_responses": {"status": "completed", "output": [{"type": "message", "content": [{"type": "output_text", "text": "Maria 1"}]}]},
    "anthropic_messages": message("Maria 1"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_account_that_runs_dry_stops_the_run_and_what_it_refused_is_asked_again(run, capsys, protocol):
    answer = dry_after(3, PROTOCOLS[protocol])
    with scripted(answer) as server:
        endpoint = {"protocol": protocol, "base_url": server.base_url}
        assert run(**endpoint) == (2, [])
        (line,) = capsys.readouterr().err.splitlines()
        assert "your account balance is insufficient" in line
        answer.filled, before = True, len(server.bodies)
        code, predictions = run("--resume", **endpoint)
        assert (code, len(server.bodies)) == (0, before + 3)
    assert [row.answer for row in predictions] == ["Maria 1"] * 6


GIVEN_UP = {
    "openai_chat": chat_reply(choices=[{"message": {"content": "Mar"}, "finish_reason": "abort"}]),
    "openai_responses": {"status": "cancelled", "output": [{"type": "message", "content": [{"type": "output_text", "text": "Mar"}]}]},
    "anthropic_messages": message("Mar", "pause_turn"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_question_whose_reply_is_given_up_fails_and_is_asked_again(run, protocol):
    given_up = True
    answer = lambda body: (200, (GIVEN_UP if given_up and "film 2" in str(body) else PROTOCOLS)[protocol])  # noqa: E731
    with scripted(answer) as server:
        endpoint = {"protocol": protocol, "base_url": server.base_url}
        code, predictions = run(**endpoint)
        assert (code, [why.partition(":")[0] for row in predictions if (why := row.failed)]) == (2, ["no_reply"])
        given_up, before = False, len(server.bodies)
        code, predictions = run("--resume", **endpoint)
        assert (code, len(server.bodies)) == (0, before + 1)
    assert [row.answer for row in predictions] == ["Maria 1"] * 6
