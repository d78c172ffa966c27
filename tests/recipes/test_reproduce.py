"""The steps that reproduce a paper: each path that one reads is made by an earlier one or downloaded, and all of them run as stand-ins."""

import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest
import yaml
from helpers.paper_tables import runs_of

from refinery.cli import main
from refinery.downloading import member_name
from refinery.project.jobs import Job, jobs_of
from refinery.project.project import read_project
from refinery.runtime.recipes.shipped_files import shipped
from refinery.runtime.run.run_dir import RunDir

ROOT = Path(__file__).parents[2]
FILES = sorted(ROOT.glob("recipes/*/reproduce.yaml"))
by_paper = pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
# What a text in a step must begin with to be a path of the reproduction's own.
_OWN = ("data/", "runs/", "indexes/", "models/")
_SHIPPED = ("recipes/", "accelerate_configs/", "refinery/")


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@cache
def jobs(file: Path) -> dict[str, Job]:
    return jobs_of(read_project(file), where=file.name)


def named(job: Job, prefixes: tuple[str, ...]) -> Iterator[str]:
    """The paths that a step names, also as READER=FILE; not its output, nor what a download takes out of an archive."""
    for text in sorted(job.texts) if job.command != "download" else ():
        path = re.sub(r"^\w+=", "", text)
        if path.startswith(prefixes) and not re.search(r"[\s={}\[\]]", path) and (job.output is None or Path(path) != job.output):
            yield path


def written(job: Job) -> list[Path]:
    """Its output and, if it takes members out of an archive, these files."""
    if job.output is None or "--members" not in job.words:
        return [job.output] if job.output else []
    after = job.words[job.words.index("--members") + 1 :]
    return [job.output / member_name(member) for member in takewhile(lambda word: not word.startswith("--"), after)]


@by_paper
def test_every_path_that_a_step_reads_was_made_by_an_earlier_step_or_is_a_download(file: Path) -> None:
    made: list[Path] = []
    for job in jobs(file).values():
        for text in named(job, _OWN):
            path = Path(text)
            assert path.suffix == ".sqlite" or any(_gives(other, path) for other in made), f"{job.name}: {text}"
        made += written(job)


@by_paper
def test_what_the_papers_own_recipes_ask_is_downloaded_under_that_name(file: Path) -> None:
    """The recipes that the steps name also work alone, without the questions that a step gives them."""
    downloads = {path for job in jobs(file).values() if job.command == "download" for path in written(job)}
    named_by_steps = {
        word for job in jobs(file).values() if job.command == "infer" for word in job.words[:1] if word.startswith("recipes/")
    }
    asked = {path: yaml.safe_load(shipped(path).read_text())["questions"] for path in named_by_steps if file.parent.name in path}
    assert [text for texts in asked.values() for text in texts if text.startswith("data/") and Path(text) not in downloads] == []


def _gives(made: Path, path: Path) -> bool:
    """Whether it is the path, lies in it, or is a run or an index that it is a file of."""
    return made == path or path in made.parents or (made in path.parents and made.parts[0] != "data")


@by_paper
def test_a_step_waits_for_every_download_that_it_reads(file: Path) -> None:
    every = jobs(file)
    for job in every.values():
        for path in map(Path, named(job, _OWN)):
            makers = [other.name for other in every.values() if other is not job and path in written(other)]
            assert set(makers) <= set(_before(job, every)), f"{job.name}: {path}"


def _before(job: Job, every: dict[str, Job]) -> set[str]:
    return {name for need in job.needs for name in (need, *_before(every[need], every))}


@by_paper
def test_every_shipped_file_that_a_step_names_exists(file: Path) -> None:
    assert [path for job in jobs(file).values() for path in named(job, _SHIPPED) if not shipped(path).exists()] == []


@by_paper
def test_a_report_waits_for_every_run_that_it_shows(file: Path) -> None:
    every = jobs(file)
    for job in (job for job in every.values() if job.command == "report"):
        outputs = {every[name].output for name in job.needs}
        assert runs_of(ROOT / job.words[0]) <= outputs, job.name


@by_paper
def test_every_table_is_reported(file: Path) -> None:
    reported = {job.words[0] for job in jobs(file).values() if job.command == "report"}
    assert reported == {str(path.relative_to(ROOT)) for path in file.parent.glob("tables/*.yaml")}


@by_paper
def test_a_stand_in_ships_for_every_download(file: Path) -> None:
    files = [path for job in jobs(file).values() if job.command == "download" for path in written(job)]
    assert files
    assert [path for path in files if not shipped(Path("recipes/stand_in") / path).exists()] == []


@pytest.mark.parametrize(
    "file", [pytest.param(file, id=file.parent.name, marks=[] if file.parent.name == "rq_rag" else [pytest.mark.slow]) for file in FILES]
)
def test_the_plan_of_all_steps_is_one_bill(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(file), "--dry-run"]) == 0
    steps = capsys.readouterr().out.splitlines()
    assert ["step", "rows", "calls", "dollars", "disk"] in [line.split()[:5] for line in steps]
    assert "GB" in next(line for line in steps if line.startswith("together"))


@by_paper
def test_the_script_runs_the_steps(file: Path, tmp_path: Path) -> None:
    """`refinery` is a script here that notes what it was called with."""
    (tmp_path / "refinery").write_text('#!/bin/sh\necho "$PWD" "$@"\n')
    (tmp_path / "refinery").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script, steps = file.with_suffix(".sh"), file.relative_to(ROOT)
    for stand_in, words in (({}, ""), ({"STAND_IN": "1"}, " --stand-in")):
        done = subprocess.run([script, "--dry-run"], cwd="/", env=environment | stand_in, capture_output=True, text=True, check=True)
        assert done.stdout == f"{ROOT} run {steps}{words} --dry-run\n"


# MIGRES' 164 steps take half a minute of one core, RQ-RAG's 238 a whole one, and RA-ISF's 162 two.
_SOME = [
    pytest.param("re_thinking", None, id="re_thinking"),
    pytest.param("migres", "table_7", id="migres-table_7"),
    pytest.param("ra_isf", "table_4", id="ra_isf-table_4", marks=pytest.mark.slow),
    pytest.param("rq_rag", "figure_6", id="rq_rag-figure_6", marks=pytest.mark.slow),
]
_ALL = [pytest.param(paper, None, id=paper, marks=pytest.mark.slow) for paper in ("migres", "ra_isf", "rq_rag")]


@pytest.mark.parametrize(("paper", "until"), [*_SOME, *_ALL])
def test_every_step_runs_on_its_stand_in_and_fills_every_table(
    paper: str, until: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    file = ROOT / "recipes" / paper / "reproduce.yaml"
    assert main(["run", str(file), "--stand-in", str(tmp_path), *(["--until", until] if until else [])]) == 0
    shown = [job for job in jobs(file).values() if job.command in ("report", "plot") and until in (None, job.name)]
    assert shown
    for job in shown:
        if job.output:
            assert (tmp_path / paper / job.output).stat().st_size > 0, job.name
        else:
            assert [run for run in runs_of(ROOT / job.words[0]) if not RunDir(tmp_path / paper / run).finished] == [], job.name


def test_every_paper_with_steps_is_run_as_a_stand_in() -> None:
    assert {file.parent.name for file in FILES} == {case.values[0] for case in (*_SOME, *_ALL) if case.values[1] is None}
