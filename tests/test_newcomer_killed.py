"""A project that is killed at random moments and run again ends with the same files, and no reply that it has is paid for again."""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.document_teacher import answer
from helpers.newcomer import command, environment, refinery, write_documents
from helpers.scripted_server import scripted

from refinery.project.state import fingerprint
from refinery.runtime.recipes.shipped_files import DEMO_CHECKPOINT

DOCUMENTS, KILLS = 24, 10
LISTING = (200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})
CALLS_IN_FLIGHT = 4
# What says when and how fast, not what: in rows of labels and of predictions.
ABOUT_TIME = {"seconds", "request_ids", "created"}


def _new(home: Path, teacher: str) -> Path:
    write_documents(home / "documents", DOCUMENTS)
    refinery("new", "project", "--documents", "documents", "--teacher", teacher, "--base", DEMO_CHECKPOINT, cwd=home)
    settings = home / "project" / "refinery.yaml"
    settings.write_text(settings.read_text().replace("max_tokens: 1000", f"calls_in_flight: {CALLS_IN_FLIGHT} #"))
    return home / "project"


def _made(project: Path) -> dict[str, Any]:
    """What the project made, without what says when and how fast."""
    runs = project / "runs"
    rows = {path: _rows(path) for folder in ("questions", "labels", "answers") for path in sorted((runs / folder).rglob("*.jsonl"))}
    models = {path: fingerprint(path) for path in sorted((runs / "models").iterdir())}
    made = {**rows, **models, runs / "index": fingerprint(runs / "index")}
    return {str(path.relative_to(runs)): value for path, value in made.items()}


def _rows(path: Path) -> list[Any]:
    return [_without_time(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _without_time(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_time(inner) for name, inner in value.items() if name not in ABOUT_TIME}
    return [_without_time(inner) for inner in value] if isinstance(value, list) else value


def _kill_after(seconds: float, project: Path) -> bool:
    """Run the project, kill its process and whatever it started, and say whether it had already ended."""
    running = subprocess.Popen(
        command(["run", "project"]),
        cwd=project.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    try:
        return running.wait(timeout=seconds) == 0
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        return False


@pytest.mark.slow
def test_a_project_that_is_killed_and_run_again_makes_the_same_and_pays_for_nothing_twice(tmp_path: Path) -> None:
    with scripted(answer, listing=LISTING) as teacher:
        straight = _new(tmp_path / "straight", teacher.base_url)
        started = time.monotonic()
        refinery("run", "project", cwd=straight.parent)
        whole = time.monotonic() - started
        asked_straight = Counter(json.dumps(body["messages"]) for body in teacher.bodies)
        teacher.bodies.clear()

        killed, draws = _new(tmp_path / "killed", teacher.base_url), random.Random(7)
        for _ in range(KILLS):
            _kill_after(draws.uniform(0.02, 0.35) * whole, killed)
        refinery("run", "project", cwd=killed.parent)
        asked = Counter(json.dumps(body["messages"]) for body in teacher.bodies)

    assert _made(killed) == _made(straight)
    assert asked.keys() == asked_straight.keys()
    assert asked.total() - asked_straight.total() <= KILLS * CALLS_IN_FLIGHT  # those that were open when it was killed
