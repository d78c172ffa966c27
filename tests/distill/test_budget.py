import json

import pytest

from distill.__main__ import main
from distill.benchmark.endpoint import Settings
from distill.benchmark.run import endpoint, stats
from distill.budget import known_price
from refinery.llms.endpoint import EndpointConfig

PRICE = {"prompt": 1000.0, "completion": 1000.0}  # a tenth of a cent a token


def cost_of(rows: list[dict]) -> float:
    return sum(row["provenance"]["cost_usd"] for row in rows)


def read_rows(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_cap_is_never_passed_and_what_was_labelled_is_usable(mock_recipe, tmp_path, capsys):
    with endpoint(Settings(latency_seconds=0.02)) as url:
        path = mock_recipe(url, count=100, teacher={"price": PRICE, "max_tokens": 100, "calls_in_flight": 8}, max_cost_usd=5.0)
        assert main([str(path)]) == 2
        assert "max_cost_usd 5.0:" in capsys.readouterr().err
        stopped = json.loads((tmp_path / "run" / "stopped.json").read_text())
        rows = read_rows(tmp_path / "run" / "train.jsonl")
        assert 0 < cost_of(rows) <= stopped["teacher"]["cost_usd"] <= 5.0
        assert len(rows) == stats(url)["answered"] == stopped["rows"]

        assert main([str(path), "--resume", "max_cost_usd=1000"]) == 0
        assert stats(url)["requests"] == 100  # nothing was paid twice
    assert len(read_rows(tmp_path / "run" / "train.jsonl")) == 100


def test_a_cap_needs_a_price(mock_recipe, capsys):
    assert main([str(mock_recipe("http://127.0.0.1:1", max_cost_usd=5.0))]) == 2
    assert "max_cost_usd: nobody knows what 'mock' costs. Set teacher.price" in capsys.readouterr().err


def test_an_unknown_price_is_null_and_never_nothing(mock_recipe, read_metrics):
    with endpoint(Settings(latency_seconds=0.0)) as url:
        assert main([str(mock_recipe(url))]) == 0
    assert (read_metrics()["teacher"]["cost_usd"], read_metrics()["teacher"]["prices"]) == (None, None)


def test_the_price_table_knows_openai_and_says_its_version():
    pytest.importorskip("genai_prices")
    price, source = known_price(EndpointConfig(model="gpt-4o-mini"))
    assert price.prompt > 0
    assert source.startswith("genai-prices ")
    assert known_price(EndpointConfig(model="gpt-4o-mini", base_url="http://127.0.0.1:8000/v1")) == (None, None)


def test_a_dry_run_estimates_from_a_pilot_and_asks_nobody(mock_recipe, tmp_path, capsys):
    with endpoint(Settings(latency_seconds=0.0)) as url:
        path = str(mock_recipe(url, count=50, teacher={"price": PRICE}))
        assert main([path, "--dry-run"]) == 0
        assert "No estimate yet: run a pilot with limit=20" in capsys.readouterr().out
        assert main([path, "limit=20"]) == 0
        assert main([path, "--dry-run"]) == 0
        assert stats(url)["requests"] == 20
        said = capsys.readouterr().out
        assert "50 rows, from 20 paid before, 95 % interval:" in said
        low, high = (float(part.lstrip("$")) for part in said.split("tokens, ")[1].split(" (prices")[0].split(" to "))
        assert main([path, "--resume"]) == 0
        assert stats(url)["requests"] == 50
    assert low - 1e-6 <= cost_of(read_rows(tmp_path / "run" / "train.jsonl")) <= high + 1e-6


def test_what_a_changed_run_pays_for_is_only_what_changed(mock_recipe, tmp_path):
    with endpoint(Settings(latency_seconds=0.0)) as url:
        path = str(mock_recipe(url, count=30))
        assert main([path]) == 0
        assert main([path, "--resume"]) == 0
        assert stats(url)["requests"] == 30
        mock_recipe(url, count=31)  # a row more in the same file
        assert main([path, "--resume"]) == 0
        assert stats(url)["requests"] == 31
        assert main([path, "--resume", "teacher.max_tokens=600"]) == 0  # no reply was cut
        assert stats(url)["requests"] == 31
        assert main([path, "--resume", "options.examples=few"]) == 0  # another prompt
        assert stats(url)["requests"] == 62
