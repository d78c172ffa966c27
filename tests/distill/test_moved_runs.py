"""A finished run is read from its own folder: on a copy, with its questions, corpus and recipe gone, every command shows the same."""

import random
import shutil
from pathlib import Path

import pytest
import yaml
from helpers import moved_runs

from distill.__main__ import main as distill
from refinery.contract.records import write_records
from refinery.demo.teacher.replies import serve
from refinery.demo.teacher.server import MODEL
from refinery.demo.world.entities import demo_worlds
from refinery.demo.world.questions import draw_questions

WORLDS = demo_worlds(0)
PASSAGES = list(WORLDS["test"].passages())
QUESTIONS = [
    question.model_copy(update={"passages": [p for p in PASSAGES if p.id in (question.supporting or ()) or p.text < "B"]})
    for question in draw_questions(WORLDS["test"], random.Random(0), {"two_hop": 12})
]
COMMANDS = moved_runs.COMMANDS | {"card": "push runs/run --to me/labels --dry-run"}
KINDS = {
    "refinement": {"task": "refinement"},
    "relevance": {"task": "relevance"},
    "candidates": {"task": "relevance", "retriever": {"name": "candidates"}},
    "questions": {"task": "questions", "options": {"documents": "documents"}, "limit": 8},
    "shards": {"task": "decomposition", "retriever": None},
}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Make a run as `runs/run` in a folder that has everything it needs, and change to that folder."""

    def make(kind: str) -> None:
        monkeypatch.chdir(_folder(tmp_path / "work"))
        write_records("questions.jsonl", QUESTIONS)
        write_records("passages.jsonl", PASSAGES)
        _folder(Path("documents")).joinpath("films.md").write_text("\n\n".join(f"# {p.title}\n\n{p.text}" for p in PASSAGES[:8]))
        with serve(WORLDS) as server:
            values = {"questions": ["questions.jsonl"], "output_dir": "runs/run", "retriever": {"passages": "passages.jsonl"}}
            values |= {"teacher": {"base_url": server.base_url, "model": MODEL}, "max_failure_share": 1} | KINDS[kind]
            Path("recipe.yaml").write_text(yaml.safe_dump(values))
            if kind != "shards":
                assert distill(["recipe.yaml"]) == 0
                return
            parts = [f"shard-{number}" for number in range(2)]
            assert [distill(["recipe.yaml", f"output_dir={part}", f"shard={part[-1]}/2"]) for part in parts] == [0, 0]
            assert distill(["merge", "runs/run", *parts]) == 0

    return make


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.fixture
def read_all(capsys, read_page):
    """What each command prints and draws in the working directory."""

    def read() -> dict:
        shown = moved_runs.shown_by(COMMANDS, capsys)
        return shown | {"page.html": read_page(Path("page.html")), "plot.png": Path("plot.png").read_bytes()}

    return read


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_shows_the_same_on_a_copy_whose_inputs_are_gone(made, read_all, tmp_path, monkeypatch, caplog, kind):
    made(kind)
    shutil.copytree("runs", _folder(tmp_path / "elsewhere") / "runs")
    before = read_all()
    assert moved_runs.codes(before, COMMANDS) == dict.fromkeys(COMMANDS, 0), before
    assert all(detail["runs"][0]["exchanges"] for detail in before["page.html"][1])
    monkeypatch.chdir(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "work")
    assert read_all() == before
    assert "left out" not in caplog.text
