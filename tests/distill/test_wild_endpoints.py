"""Behaviors of servers and models that people call: for each, the rows that are kept, the calls that are paid, and what the user reads."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.scripted_server import Answer, scripted
from helpers.wild_endpoints.by_heart import BY_HEART
from helpers.wild_endpoints.limits import LIMITS
from helpers.wild_endpoints.parameters import GPT5_TEMPERATURE, MAX_TOKENS, PARAMETERS, without
from helpers.wild_endpoints.replies import REPLIES
from helpers.wild_endpoints.responses_api import RESPONSES_API
from helpers.wild_endpoints.servers import SERVERS
from helpers.wild_endpoints.several import SEVERAL
from helpers.wild_endpoints.streams import STREAMS
from helpers.wild_endpoints.table import OK, WildEndpoint

from distill.__main__ import main

ROWS = [*PARAMETERS, *REPLIES, *BY_HEART, *RESPONSES_API, *SERVERS, *SEVERAL, *STREAMS, *LIMITS]
QUESTIONS = 4


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_run_keeps_what_it_pays_for(row: WildEndpoint, mock_recipe, tmp_path, monkeypatch, capsys, caplog):
    statuses: list[int] = []

    def answer(body: dict[str, Any]) -> Answer:
        answered = row.answer(body)
        statuses.append(answered[0])
        return answered

    for name, value in row.env.items():
        monkeypatch.setenv(name, value)
    with scripted(answer, server_type=row.server_type) as server:
        teacher = {"calls_in_flight": 1, "max_tries": 2} | _filled(row.teacher, server.address)
        recipe = {"max_failure_share": 1, "rows_in_flight": 1} | _filled(row.recipe, server.address)
        code = main([str(mock_recipe(server.address, count=QUESTIONS, teacher=teacher, **recipe))])
    read = caplog.text + capsys.readouterr().err + _text(tmp_path / "run" / "failures.jsonl")
    metrics = json.loads(_text(tmp_path / "run" / "metrics.json") or _text(tmp_path / "run" / "stopped.json") or "{}")
    rows = _text(tmp_path / "run" / "train.jsonl").splitlines()

    assert (code, len(rows), statuses.count(200)) == (row.code, row.kept, row.paid), read
    assert row.sent is None or len(statuses) == row.sent
    assert [said for said in row.says if said not in read] == [], read
    assert metrics.get("rejected_by_reason", {}) == row.rejected
    assert {name: metrics["teacher"][name] for name in row.metrics} == row.metrics
    assert "Traceback" not in read


def test_what_is_found_out_is_in_no_replys_key(mock_recipe, tmp_path):
    """A reply that a server gave after it refused a parameter is found by a run against a server that takes it."""
    with scripted(without(max_tokens=MAX_TOKENS, temperature=GPT5_TEMPERATURE)) as refusing:
        assert main([str(mock_recipe(refusing.address, count=QUESTIONS))]) == 0
    again = {"store": str(tmp_path / "run" / "effects.sqlite"), "output_dir": str(tmp_path / "again")}
    with scripted(lambda body: OK) as taking:
        assert main([str(mock_recipe(taking.address, count=QUESTIONS, **again))]) == 0
        assert taking.bodies == []


def test_the_names_of_the_rows_differ():
    assert len({row.name for row in ROWS}) == len(ROWS)


def _filled(values: Any, url: str) -> Any:
    return json.loads(json.dumps(dict(values)).replace("{url}", url).replace("{host}", url.removeprefix("http://")))


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
