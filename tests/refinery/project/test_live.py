"""What a run of a project shows as it goes on, here and from elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from refinery.cli import main
from refinery.project.jobs import Job
from refinery.project.live import LiveRun, project_frame
from refinery.project.run import run_jobs
from refinery.project.state import STATE_FOLDER, write_state
from refinery.runtime.run.progress import Progress

STEPS = ("labels", "model", "answers")


def jobs() -> dict[str, Job]:
    return {name: Job(name, "", (), (sys.executable, "-c", ""), {}, Path(name), frozenset(), {}) for name in STEPS}


@contextmanager
def training(folder: Path) -> Iterator[LiveRun]:
    """A run whose labels are done, and whose model is trained."""
    for name in (STATE_FOLDER, "model"):
        (folder / name).mkdir()
    with LiveRun(jobs(), Path(), line_seconds=0.01) as live:
        live.begin("labels")
        live.end("labels", 61.0)
        live.begin("model")
        yield live


def test_a_step_at_work_shows_how_far_its_stage_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with training(folder), Progress("train", total=40, folder=folder / "model", below=lambda: "loss=2.1") as progress:
        progress.advance(10)
        said = ""
        while "10 of 40" not in said:
            time.sleep(0.01)
            said += capsys.readouterr().err
    assert "model: ━━━━━─────────────── 10 of 40 (25%) in" in said
    assert "loss=2.1" in said


def test_a_step_without_progress_shows_its_logs_last_line(folder: Path) -> None:
    (folder / "logs").mkdir()
    (folder / "logs/model.log").write_text("loading\nindex words: 3/9\x1b[2J\n\n")
    with training(folder) as live:
        assert live.at_work("model") == "for 0 s: index words: 3/9\x1b[2J"
        assert "\x1b" not in project_frame(folder).text


def test_a_project_is_watched_from_elsewhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with training(folder):
        while "model  " not in project_frame(folder).text:
            time.sleep(0.01)
        assert main(["watch", str(folder), "--once"]) == 0
        shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["run"].endswith(f"run {folder.name}")
    assert (shown["state"], shown["steps"], shown["next"]) == ("running", "labels 61 s", "answers")
    assert shown["done"].startswith("1 of 3 (33%)")
    assert "left" not in shown["done"]


def test_a_project_where_nothing_runs_says_what_was_done(folder: Path) -> None:
    run_jobs({"labels": jobs()["labels"]}, Path(), at_once=1)
    write_state(jobs()["model"], {}, Path())
    shown = dict(line.split(maxsplit=1) for line in project_frame(folder).text.splitlines())
    assert shown == {"project": str(folder), "state": "not running", "done": "labels", "begun": "model"}
