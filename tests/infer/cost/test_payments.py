"""Served models are paid once for each reply, and never more than `max_cost_usd`."""

import json
import subprocess
import sys
import time

import pytest
import yaml
from helpers.scripted_server import chat_reply, prompt_of, scripted

from infer.__main__ import main
from refinery.contract.records import Passage, Question, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction

A_CENT = {"prompt": 0.0, "completion": 100.0}  # a reply of 100 tokens costs a cent


def reply(text: str = "The answer is A.") -> tuple[int, dict]:
    return 200, chat_reply(text, usage={"prompt_tokens": 10, "completion_tokens": 100})


@pytest.fixture
def paid_recipe(tmp_path):
    """Write a recipe of `count` questions against an endpoint; other values replace or extend it."""

    def write(url: str, *, count: int = 20, price: dict | None = A_CENT, **values) -> str:
        write_records(
            tmp_path / "questions.jsonl", [Question(id=f"q{i}", text=f"Who directed film {i}?", answers=["A"]) for i in range(count)]
        )
        write_records(tmp_path / "passages.jsonl", [Passage(id=str(i), title=f"film {i}", text=f"film {i} is by A.") for i in range(9)])
        recipe = {
            "decoder": "self_criticism",
            "questions": [str(tmp_path / "questions.jsonl")],
            "output_dir": str(tmp_path / "run"),
            "endpoint": {"base_url": url, "model": "m", "price": price, "max_tokens": 100, "calls_in_flight": 4},
            "retriever": {"passages": str(tmp_path / "passages.jsonl")},
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | values))
        return str(tmp_path / "recipe.yaml")

    return write


@pytest.fixture
def server():
    """A server whose every reply costs a cent."""
    with scripted(lambda body: reply()) as found:
        yield found


def test_a_run_stops_before_its_cap_and_goes_on_with_a_higher_one(server, paid_recipe, tmp_path, capsys):
    path = paid_recipe(server.base_url, max_cost_usd=0.1)
    assert main([path]) == 2
    assert "max_cost_usd 0.1" in capsys.readouterr().err
    assert len(server.bodies) == 10
    assert main([path, "--resume", "max_cost_usd=1"]) == 0
    assert len(server.bodies) == len({prompt_of(body) for body in server.bodies}) == 60
    spent = json.loads((tmp_path / "run" / "metrics.json").read_text())["endpoints"]["model"]
    assert (spent["cost_usd"], spent["attempt_cost_usd"]) == (0.6, 0.5)


def test_a_killed_run_asks_for_no_reply_twice(paid_recipe, tmp_path):
    def slowly(body):
        time.sleep(0.05)
        return reply()

    with scripted(slowly) as server:
        path = paid_recipe(server.base_url, questions_in_flight=2)
        for asked in (6, 15):
            process = subprocess.Popen(
                [sys.executable, "-m", "infer", path, "--resume"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            while len(server.bodies) < asked:
                time.sleep(0.01)
            process.kill()
            process.wait()
        assert main([path, "--resume"]) == 0
    # A request that was on its way when the process was killed has no reply that could have been kept: at most one for each of the two
    # questions in flight, in each of the two killed attempts.
    assert 60 <= len(server.bodies) <= 64
    assert len({row.question_id for row in read_records(tmp_path / "run" / PREDICTIONS_FILE, Prediction)}) == 20


def test_samples_of_a_question_are_kept_apart(paid_recipe, tmp_path):
    drawn = iter(range(1000))
    with scripted(lambda body: reply(f"The answer is {next(drawn)} [1].")) as server:
        path = paid_recipe(server.base_url, count=2, decoder="alce", options={"strategy": "rerank", "samples": 3})
        assert main([path]) == 0
        first = [row.answer for row in read_records(tmp_path / "run" / PREDICTIONS_FILE, Prediction)]
        texts = [
            step.text
            for row in read_records(tmp_path / "run" / PREDICTIONS_FILE, Prediction)
            for step in row.trace
            if step.name == "sample"
        ]
        assert len(server.bodies) == len(set(texts)) == 6
        again = [path, f"output_dir={tmp_path / 'again'}", f"store={tmp_path / 'run' / 'effects.sqlite'}"]
        assert main(again) == 0
    assert len(server.bodies) == 6
    assert [row.answer for row in read_records(tmp_path / "again" / PREDICTIONS_FILE, Prediction)] == first


def test_another_model_or_limit_is_asked_anew(server, paid_recipe, tmp_path):
    store = f"store={tmp_path / 'shared.sqlite'}"
    path = paid_recipe(server.base_url, count=1)
    for number, change in enumerate(
        ("endpoint.model=m", "endpoint.model=other", "endpoint.max_tokens=50", "endpoint.top_p=0.5", "endpoint.model=m"), 1
    ):
        assert main([path, store, change, f"output_dir={tmp_path / str(number)}"]) == 0
    assert len(server.bodies) == 12


def test_a_cap_needs_a_price_and_a_paid_model(server, paid_recipe, capsys):
    assert main([paid_recipe(server.base_url, price=None, max_cost_usd=1)]) == 2
    assert "price" in capsys.readouterr().err
    assert main([paid_recipe(server.base_url, endpoint=None, llm={"base": "some/base"}, max_cost_usd=1)]) == 2
    assert "every model is on this machine" in capsys.readouterr().err
    assert not server.bodies
