"""The table of recipes/README.md, which says what makes each table and figure of the papers, names the steps that are there."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from refinery.project.jobs import Job, jobs_of
from refinery.project.project import read_project

ROOT = Path(__file__).parents[2]
PAPERS = {"ra_isf": "RA-ISF", "rq_rag": "RQ-RAG", "re_thinking": "re-thinking", "migres": "MIGRES"}
by_paper = pytest.mark.parametrize("paper", PAPERS)
# What makes a number or what a number is made of; the other steps fetch and index.
MAKES = {"distill", "train", "infer", "evaluate-modules", "report", "plot"}
NAMED = re.compile(r"`([a-z_0-9]+\*?)`")
COUNTED = re.compile(r"steps? ((?:`[a-z_0-9]+\*?`(?:, )?)+): (\d+) runs(?! each)")


@cache
def jobs(paper: str) -> list[Job]:
    file = ROOT / "recipes" / paper / "reproduce.yaml"
    return list(jobs_of(read_project(file), where=file.name).values())


def lines(paper: str) -> list[str]:
    """The lines of a paper's table."""
    text = (ROOT / "recipes/README.md").read_text(encoding="utf-8")
    section = text.partition(f"## {PAPERS[paper]}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("|")]


def named(paper: str, pattern: str) -> list[Job]:
    return [job for job in jobs(paper) if fnmatch(job.entry, pattern) or fnmatch(job.name, pattern)]


def patterns(paper: str) -> Iterator[str]:
    for line in lines(paper):
        yield from NAMED.findall(line)


@by_paper
def test_every_step_that_the_table_names_is_there(paper: str) -> None:
    assert [pattern for pattern in patterns(paper) if not named(paper, pattern)] == []


@by_paper
def test_every_step_that_makes_something_is_named(paper: str) -> None:
    found = {job.name for pattern in patterns(paper) for job in named(paper, pattern)}
    assert [job.name for job in jobs(paper) if job.command in MAKES and job.name not in found] == []


@by_paper
def test_the_table_counts_the_runs(paper: str) -> None:
    counted = [match for line in lines(paper) for match in COUNTED.finditer(line)]
    assert counted
    for match in counted:
        runs = {
            job.name for pattern in NAMED.findall(match[1]) for job in named(paper, pattern) if job.command in ("infer", "evaluate-modules")
        }
        assert len(runs) == int(match[2]), match[0]
