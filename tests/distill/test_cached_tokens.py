"""A distill run whose teacher's provider has most of each prompt in its cache."""

import pytest
from helpers.scripted_server import chat_reply, scripted

from distill.__main__ import main

FULL = {"prompt": 1.0, "completion": 4.0}
USAGE = {"prompt_tokens": 100_000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 90_000}}


@pytest.fixture
def run(mock_recipe, capsys):
    def run(*arguments: str, **price: float) -> str:
        with scripted(lambda body: (200, chat_reply(usage=USAGE))) as server:
            assert main([str(mock_recipe(server.address, count=4, teacher={"price": FULL | price})), *arguments]) == 0
        return next(line for line in capsys.readouterr().out.splitlines() if line.startswith("cost"))

    return run


def test_without_a_price_of_the_cache_the_cost_says_that_it_is_an_upper_bound(run, read_metrics, tmp_path):
    assert "400,040 tokens (360,000 cached), $0.40 (cached tokens counted in full)" in run()
    spent = read_metrics()["teacher"]
    assert (spent["num_cached_tokens"], spent["num_cached_tokens_in_full"]) == (360_000, 360_000)
    assert "400000 in prompts (360000 cached), 40 in replies. Cost: $0.40 (cached tokens counted in full)." in (
        tmp_path / "run" / "README.md"
    ).read_text(encoding="utf-8")


def test_with_a_price_of_the_cache_the_cost_is_exact(run, read_metrics):
    line = run(cached=0.1)
    assert "400,040 tokens (360,000 cached), $0.08" in line
    assert "in full" not in line
    assert read_metrics()["teacher"]["cost_usd"] == pytest.approx(0.04 + 0.036 + 0.00016)


def test_a_resumed_run_still_says_it_of_what_was_paid_before(run):
    run()
    assert "0 tokens, $0.40 (cached tokens counted in full)" in run("--resume", "limit=4")
