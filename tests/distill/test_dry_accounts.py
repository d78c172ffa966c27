"""An account that runs dry in the middle of a run, of the teacher or of another model that takes part, with real servers."""

import json

import pytest
from helpers.scripted_server import chat_reply, prompt_of, scripted

from distill.__main__ import main
from refinery.contract.records import Question, write_records

DRY = {
    "status 400": (400, {"error": {"message": "The tenant has nothing left."}}),
    "status 403": (403, {"code": 30001, "message": "Sorry, your account balance is insufficient", "data": None}),
}
GOOD = chat_reply()
RIGHT = chat_reply('{"reason": "", "wrong": []}')
KNOWS = {"task": "self_knowledge", "teacher": None, "options": {"by": "student", "samples": 1}}
ESCALATES = {"samples": 2, "teacher": {"temperature": 0.7}}  # of two malformed replies, each row goes to the strong teacher


class Account:
    """A server's answers: so many replies of the model `name`, and then the same refusal; of other models always `others`."""

    def __init__(self, refusal, paid, name, reply, others=GOOD):
        self.refusal, self.left, self.name, self.reply, self.others = refusal, paid, name, reply, others

    def __call__(self, body):
        if body["model"] != self.name:
            return 200, self.others
        self.left -= prompt_of(body) != "Hi"
        return (200, self.reply) if self.left >= 0 else self.refusal


def rows(tmp_path):
    return [json.loads(line) for line in (tmp_path / "run" / "train.jsonl").read_text().splitlines()]


def model(server, name):
    return {"base_url": server.base_url, "model": name, "calls_in_flight": 1}


@pytest.mark.parametrize("refusal", DRY.values(), ids=DRY)
@pytest.mark.parametrize(
    ("name", "reply", "others", "values"),
    [
        ("mock", GOOD, GOOD, lambda server: {}),
        ("judge", RIGHT, GOOD, lambda server: {"judge": model(server, "judge")}),
        ("strong", GOOD, chat_reply("Hm."), lambda server: ESCALATES | {"escalate": {"teacher": model(server, "strong")}}),
        ("target", chat_reply("Lyon"), GOOD, lambda server: KNOWS | {"target_endpoint": model(server, "target")}),
    ],
    ids=["teacher", "judge", "strong teacher", "target"],
)
def test_the_run_stops_and_the_rows_that_were_refused_are_asked_again(mock_recipe, tmp_path, capsys, refusal, name, reply, others, values):
    account = Account(refusal, 4, name, reply, others)
    with scripted(account) as server:
        recipe = str(mock_recipe(server.address, count=6, rows_in_flight=2, max_failure_share=1, **values(server)))
        questions = [Question(id=f"q{i}", text=f"Who directed film {i}?", answers=["Lyon"]) for i in range(6)]
        write_records(tmp_path / "questions.jsonl", questions)
        assert main([recipe]) == 2
        assert f"(model '{name}') cannot be used: it has answered before and now refuses every request" in capsys.readouterr().err
        account.left = 100
        assert main([recipe, "--resume"]) == 0
    assert len(rows(tmp_path)) == 6


@pytest.mark.parametrize("refusal", DRY.values(), ids=DRY)
def test_the_fallbacks_continue_until_theirs_is_dry_too(mock_recipe, tmp_path, caplog, capsys, refusal):
    first, second = Account(refusal, 2, "mock", GOOD), Account(refusal, 2, "second", GOOD)
    with scripted(first) as one, scripted(second) as other:
        recipe = str(mock_recipe(one.address, count=6, rows_in_flight=1, max_failure_share=1, fallbacks=[model(other, "second")]))
        assert main([recipe]) == 2
        assert "The run continues with fallback_1 ('second')." in caplog.text
        assert "(model 'second') cannot be used" in capsys.readouterr().err
        first.left = 100
        assert main([recipe, "--resume"]) == 0
    assert len(rows(tmp_path)) == 6
