"""A finished run is read from its own folder: on a copy, with its base, data and recipe gone, every command shows the same."""

import shutil
from pathlib import Path

import pytest
import yaml
from helpers import moved_runs

from refinery.contract.records import KnowledgeLabel, write_records
from train.__main__ import main as train

ROWS = [KnowledgeLabel(question_id=str(i), question=f"Who directed film {i}?", label=("know", "unknow")[i % 2]) for i in range(8)]
RECIPE = {
    "task": "self_knowledge",
    "base": "models/base",
    "data": ["data/train.jsonl"],
    "validation": ["data/validation.jsonl"],
    "output_dir": "runs/run",
    "learning_rate": 1e-2,
    "max_steps": 2,
    "dtype": "float32",
    "gradient_checkpointing": False,
}
COMMANDS = moved_runs.COMMANDS | {"card": "push runs/run --to me/judge --dry-run"}


@pytest.fixture
def read_all(capsys):
    """What each command prints and draws in the working directory."""

    def read() -> dict:
        shown = moved_runs.shown_by(COMMANDS, capsys)
        return shown | {name: Path(name).read_bytes() for name in ("page.html", "plot.png")}

    return read


def test_every_command_shows_the_same_on_a_copy_whose_inputs_are_gone(tiny_bases, tmp_path, monkeypatch, read_all):
    for folder in ("work/data", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    shutil.copytree(tiny_bases["tied"], RECIPE["base"])
    for name in (*RECIPE["data"], *RECIPE["validation"]):
        write_records(name, ROWS)
    Path("recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    assert train(["recipe.yaml"]) == 0
    shutil.copytree("runs", tmp_path / "elsewhere" / "runs")
    before = read_all()
    assert moved_runs.codes(before, COMMANDS) == dict.fromkeys(COMMANDS, 0), before
    assert "the folder `models/base` on the machine where this model was trained" in before["card"][1]
    monkeypatch.chdir(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "work")
    assert read_all() == before
