import asyncio
import json
import random
import subprocess
import sys
import time
from decimal import Decimal

import pytest

from benchmarks.distill.endpoint import Settings
from benchmarks.distill.run import endpoint, stats
from distill.__main__ import main
from refinery.demo.teacher.server import serving
from refinery.llms.served.endpoint import EndpointConfig, Reply
from refinery.llms.served.paid.budget import Budget, BudgetExhausted, Spending, known_price
from refinery.llms.served.transport.chat_request import ChatRequest

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
    assert "max_cost_usd: no price is known for 'mock'. Set teacher.price" in capsys.readouterr().err


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
        capsys.readouterr()
        assert main([path, "--dry-run"]) == 0
        assert stats(url)["requests"] == 20
        said = capsys.readouterr().out
        assert "50 rows, estimated from 20 paid rows, 95% interval:" in said
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


class Job:
    """Rows that reserve and settle at random beside each other, until the cap lets no more through."""

    def __init__(self, seed: int) -> None:
        self.random = rng = random.Random(seed)
        price = {kind: round(rng.uniform(0.001, 20), rng.randint(1, 6)) for kind in ("prompt", "completion")}
        self.cap = round(rng.uniform(0.0005, 0.05), rng.randint(4, 9))
        self.price, config = price, EndpointConfig(model="m", price=price, max_tokens=rng.randint(1, 500))
        self.budget, self.most_tokens, self.paid = Budget(config, self.cap), config.max_tokens, Decimal(0)

    async def row(self) -> None:
        while True:
            request = ChatRequest(b"", (("user", "x" * self.random.randint(1, 2000)),))
            reserved = await self.budget.reserve(request)
            await asyncio.sleep(0)
            prompt, completion = self.random.randint(1, request.most_prompt_tokens()), self.random.randint(1, self.most_tokens)
            self.paid += (prompt * Decimal(str(self.price["prompt"])) + completion * Decimal(str(self.price["completion"]))) / 10**6
            self.budget.settle(reserved, Reply("text", "stop", "r", prompt, completion), 0)

    async def run(self) -> list:
        return await asyncio.wait_for(asyncio.gather(*(self.row() for _ in range(8)), return_exceptions=True), 30)


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_no_price_and_no_cap_hang_or_pass_the_cap(first):
    for seed in range(first, first + 50):
        job = Job(seed)
        assert {type(ended) for ended in asyncio.run(job.run())} == {BudgetExhausted}
        assert 0 <= job.paid <= Decimal(str(job.budget.spent)) <= Decimal(str(job.cap))


@pytest.mark.parametrize("tokens", [(0, 0), (20, 0)])
def test_a_reply_without_its_usage_costs_what_was_reserved_for_it(tokens):
    async def run() -> float:
        budget = Budget(EndpointConfig(model="m", price=PRICE, max_tokens=100), None)
        request = ChatRequest(b"", (("user", "Where?"),))
        budget.settle(await budget.reserve(request), Reply("In Lyon.", "stop", "r", *tokens), 0)
        return budget.spent

    assert asyncio.run(run()) >= 0.1  # of the completion alone


A_CALL = {"price": {"prompt": 0, "completion": 1000}, "max_tokens": 20, "calls_in_flight": 4}  # each costs exactly $0.02


def test_the_cap_holds_for_all_attempts_together(mock_recipe, tmp_path):
    with endpoint(Settings(latency_seconds=0.0)) as url:
        path = str(mock_recipe(url, count=100, teacher=A_CALL, max_cost_usd=0.5))
        assert [main([path]), main([path, "--resume"]), main([path, "--resume"])] == [2, 2, 2]
        assert stats(url)["answered"] == 25
        assert json.loads((tmp_path / "run" / "stopped.json").read_text())["teacher"]["cost_usd"] == 0.5
        assert main([path, "--resume", "max_cost_usd=2"]) == 0
    spent = json.loads((tmp_path / "run" / "metrics.json").read_text())["teacher"]
    assert (spent["cost_usd"], spent["attempt_cost_usd"]) == (2.0, 1.5)
    assert "Cost: $2.00 in all attempts, $1.50 in the last one." in (tmp_path / "run" / "README.md").read_text()


def test_the_cap_holds_over_attempts_that_were_killed(mock_recipe):
    with endpoint(Settings(latency_seconds=0.1)) as url:
        path = str(mock_recipe(url, count=100, teacher=A_CALL, max_cost_usd=0.5))
        for paid in (4, 8):
            process = subprocess.Popen([sys.executable, "-m", "distill", path, "--resume"], stderr=subprocess.DEVNULL)
            while stats(url)["answered"] < paid:
                time.sleep(0.01)
            process.kill()
            process.wait()
        assert main([path, "--resume"]) == 2
        assert 8 < stats(url)["requests"] <= 25


def test_the_cap_holds_over_tries_whose_answer_never_comes(mock_recipe, capsys):
    asked = []

    def hang(prompt: str) -> str:
        if "film 0?" in prompt:
            asked.append(prompt)
            time.sleep(0.5)
        return "{}"

    with serving(hang) as server:
        teacher = A_CALL | {"timeout_seconds": 0.1, "max_tries": 5}
        path = mock_recipe(server.base_url.removesuffix("/v1"), count=1, teacher=teacher, max_cost_usd=0.05)
        assert main([str(path)]) == 2
    assert len(asked) == 2
    assert "max_cost_usd 0.05: 0.0400 is spent" in capsys.readouterr().err


def test_the_endpoints_of_a_job_share_its_cap():
    async def run() -> float:
        spending, config = Spending(), EndpointConfig(model="m", **A_CALL)
        teacher, target = (Budget(config, 0.05, spending=spending, endpoint=name) for name in ("teacher", "target_endpoint"))
        for budget in (teacher, target):
            budget.settle(await budget.reserve(ChatRequest(b"", (("user", "Where?"),))), Reply("In Lyon.", "stop", "r", 5, 20), 0)
        with pytest.raises(BudgetExhausted):
            await teacher.reserve(ChatRequest(b"", (("user", "Who?"),)))
        return teacher.spent, target.spent

    assert asyncio.run(run()) == (0.02, 0.02)


def test_a_cap_after_calls_of_unknown_price_is_refused(mock_recipe, tmp_path, capsys):
    with endpoint(Settings(latency_seconds=0.0)) as url:
        path = str(mock_recipe(url))
        assert main([path]) == 0
        capped = ["teacher.price={prompt: 1, completion: 1}", "max_cost_usd=5"]
        assert main([path, "--resume", *capped]) == 2
        assert "earlier attempts of this run paid at unknown prices" in capsys.readouterr().err
        assert main([path, *capped, f"output_dir={tmp_path}/again", f"store={tmp_path}/run/effects.sqlite"]) == 0
        assert stats(url)["requests"] == 40
