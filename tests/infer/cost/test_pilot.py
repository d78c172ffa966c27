"""What a dry run says that a run will take, and what a pilot makes of it."""

import re

import pytest
import yaml
from helpers.scripted_server import chat_reply, scripted

from infer.__main__ import main
from refinery.contract.records import Question, write_records

PRICE = {"prompt": 0.0, "completion": 100.0}  # a reply of 100 tokens costs a cent


@pytest.fixture
def server():
    with scripted(lambda body: (200, chat_reply("The answer is A.", usage={"prompt_tokens": 10, "completion_tokens": 100}))) as found:
        yield found


@pytest.fixture
def recipe(tmp_path, server):
    questions = [Question(id=f"q{i}", text=f"Who directed film {i}?", answers=["A"]) for i in range(40)]
    write_records(tmp_path / "questions.jsonl", questions)
    values = {
        "decoder": "self_criticism",
        "questions": [str(tmp_path / "questions.jsonl")],
        "output_dir": str(tmp_path / "run"),
        "endpoint": {"base_url": server.base_url, "model": "m", "price": PRICE, "max_tokens": 100},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))
    return str(tmp_path / "recipe.yaml")


def test_a_dry_run_bills_the_decoders_own_arithmetic_and_asks_nobody(recipe, server, capsys):
    assert main([recipe, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "40 questions: 120 calls" in said
    assert "  improve: 1 calls of a question, each of at most 300 new tokens" in said
    assert "No estimate yet: add --pilot 20" in said
    assert not server.bodies


def test_a_pilots_replies_are_used_by_the_run_and_its_estimate_is_what_the_run_costs(recipe, server, capsys):
    assert main([recipe, "--dry-run", "--pilot", "10"]) == 0
    said = capsys.readouterr().out
    assert len(server.bodies) == 30
    assert "Estimated from a pilot of 10 questions, 95% interval: 120 calls, 1,200 tokens read, 12,000 written, $1.2000 to $1.2000" in said
    assert re.search(r"hours at the pilot's [\d,]+ tokens a second", said)
    assert main([recipe]) == 0
    assert len(server.bodies) == 120


def test_a_label_over_chat_is_a_reply_that_is_paid_for(recipe, capsys):
    changes = ["decoder=ra_isf", "retriever.name=candidates", "endpoint.temperature=1", "endpoint.label_samples=3", "options.max_depth=0"]
    assert main([recipe, "--dry-run", *changes]) == 0
    assert "  self_knowledge: 3 calls of a question, each of at most 16 new tokens" in capsys.readouterr().out


def test_a_pilot_of_another_recipe_is_not_used(recipe, capsys):
    assert main([recipe, "--dry-run", "--pilot", "3"]) == 0
    assert main([recipe, "--dry-run", "options.rounds=2"]) == 0
    assert "No estimate yet" in capsys.readouterr().out.rpartition("--- what it will take")[2]


def test_a_pilot_stops_before_the_cap(recipe, server, capsys):
    assert main([recipe, "--dry-run", "--pilot", "10", "max_cost_usd=0.1"]) == 2
    assert "max_cost_usd 0.1" in capsys.readouterr().err
    assert len(server.bodies) == 10


def test_an_unknown_price_is_said_and_never_nothing(recipe, capsys):
    assert main([recipe, "--dry-run", "endpoint.price=null"]) == 0
    assert "price unknown (set endpoint.price)" in capsys.readouterr().out
