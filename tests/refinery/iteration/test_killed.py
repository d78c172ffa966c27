"""An iteration that is killed at random moments and run again has the same rounds, and what it has sampled stays as it is."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.family_rows import NAMES, SHORT_RUN, passage
from helpers.grpo_runs import OTHERS, questions, trained_generator
from helpers.newcomer import command, environment, refinery

from refinery.contract.records import write_records
from refinery.contract.trace import PREDICTIONS_FILE
from refinery.iteration.table import read_rounds

KILLS = 5
LEDGERS = "*.ledger.*"  # the answers of runs that are not finished


def _new(home: Path, generator: Path) -> Path:
    """A folder with the questions, the passages and the recipes of two rounds."""
    home.mkdir()
    for name, rows in (("train", questions()), ("held_out", questions(OTHERS)), ("passages", [*map(passage, (*NAMES, *OTHERS))])):
        write_records(home / f"{name}.jsonl", rows)
    path = {
        "decoder": "rq_rag",
        "retriever": {"passages": "passages.jsonl"},
        "passages_per_query": 1,
        "max_new_tokens": 6,
        "options": {"adaptive": True, "max_query_tokens": 8},
    }
    stages: dict[str, dict[str, Any]] = {
        "sample": path | {"samples": 8, "temperature": 1.0, "questions_in_flight": 4},
        "keep": {"task": "traces", "options": {"form": "trajectories", "searches_find": "anything"}, "max_failure_share": 1.0},
        "train": SHORT_RUN | {"task": "refinement", "base": str(generator), "strategy": "full", "max_steps": 6, "save_steps": 2},
        "answer": path,
    }
    for name, values in stages.items():
        placed = values | ({"llm": {"base": str(generator)}, "questions": ["train.jsonl"]} if "decoder" in values else {})
        (home / f"{name}.yaml").write_text(yaml.safe_dump(placed | {"output_dir": "unused"}))
    recipe = {
        "output_dir": "runs",
        "start": str(generator),
        "questions": ["train.jsonl"],
        "validation": ["held_out.jsonl"],
        **{stage: [f"{stage}.yaml"] for stage in ("sample", "keep", "train")},
        "evaluate": {"path": ["answer.yaml"]},
        "rounds": 2,
        "patience": 2,
    }
    (home / "iterate.yaml").write_text(yaml.safe_dump(recipe))
    return home


def _kill_after(seconds: float, home: Path) -> bool:
    """Run the iteration, kill its process, with which Linux kills what it started, and say whether it was still running."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = subprocess.Popen(command(["iterate", "iterate.yaml"]), cwd=home, env=environment(), start_new_session=True, **quiet)
    try:
        running.wait(timeout=seconds)
        return False
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        return True


def _unfinished(home: Path) -> dict[Path, dict[str, tuple[int, float]]]:
    """The samples of runs that are not finished, each with its attempt and the second in which it was written."""
    written = lambda rows: {row["prediction"]["question_id"]: (row["attempt"], row["seconds"]) for row in rows}  # noqa: E731
    return {path: written(_rows(path)) for path in home.rglob(LEDGERS)}


def _rows(path: Path) -> list[Any]:
    """The whole lines of a file, the last of which may have been cut short."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]


def _answers(home: Path) -> dict[str, str]:
    """Every answer of every run, by its run and its question."""
    runs = home / "runs"
    files = sorted(runs.rglob(PREDICTIONS_FILE))
    return {f"{path.relative_to(runs)} {row['question_id']}": row["answer"] for path in files for row in _rows(path)}


@pytest.mark.slow
def test_an_iteration_that_is_killed_and_run_again_has_the_same_rounds(tmp_path, tiny_bases):
    generator = trained_generator(tmp_path, tiny_bases["tied"])
    straight, killed = (_new(tmp_path / name, generator) for name in ("straight", "killed"))
    started = time.monotonic()
    refinery("iterate", "iterate.yaml", cwd=straight)
    whole, draws, before, hits = time.monotonic() - started, random.Random(3), {}, 0
    for _ in range(KILLS):
        hits += _kill_after(draws.uniform(0.05, 0.35) * whole, killed)
        now = _unfinished(killed)
        assert all(found.items() <= now.get(path, found).items() for path, found in before.items())  # nothing is sampled twice
        before = now
    assert hits >= KILLS - 1
    refinery("iterate", "iterate.yaml", cwd=killed)
    assert _answers(killed) == _answers(straight)
    assert read_rounds(killed / "runs") == read_rounds(straight / "runs")
