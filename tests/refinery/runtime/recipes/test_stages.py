"""Stages as the installed package declares them."""

import sys
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError

import pytest

from refinery.cli import main
from refinery.errors import PluginError
from refinery.runtime.recipes.stages import GROUP, Stage, _load, own_stage, stages


def test_the_three_stages_are_declared():
    assert {name: stage.name for name, stage in stages().items()} == {"distill": "distill", "infer": "infer", "train": "train"}
    assert all(isinstance(stage, Stage) for stage in stages().values())


def test_a_stage_that_ships_is_found_by_its_name_alone():
    assert own_stage("distill") is stages()["distill"]
    assert own_stage("view") is None


def test_a_stage_finds_its_parts_in_its_package(tmp_path, monkeypatch):
    (tmp_path / "lab" / "viewing").mkdir(parents=True)
    (tmp_path / "lab" / "stage.py").write_text(
        "from refinery.runtime.recipes.stages import Stage\nclass Lab(Stage):\n    def panels(self, runs):\n        return ['own']\n"
    )
    (tmp_path / "lab" / "viewing" / "card.py").write_text("def digest(run):\n    return [('run', run)]\n")
    monkeypatch.syspath_prepend(tmp_path)
    stage = import_module("lab.stage").Lab()
    assert (stage.digest("r"), stage.panels([]), stage.commands()) == ([("run", "r")], ["own"], None)


def test_a_stage_in_a_single_file_needs_no_package(tmp_path, monkeypatch):
    (tmp_path / "lone_lab.py").write_text("from refinery.runtime.recipes.stages import Stage\nclass Lab(Stage):\n    name = 'lab'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert import_module("lone_lab").Lab().commands() is None


@pytest.mark.parametrize(
    ("value", "fault"),
    [("no_such_package.stage:STAGE", "cannot be loaded"), ("refinery.errors:NONE", "cannot be loaded"), ("sys:argv", "is not a Stage")],
)
def test_what_is_no_stage_is_one_line(value, fault):
    with pytest.raises(PluginError, match=f"stage 'x': {value} {fault}"):
        _load(EntryPoint("x", value, GROUP))


@pytest.mark.parametrize("own", ["hidden/__init__.py", "hidden.py"])
def test_a_folder_or_file_that_hides_a_stage_is_named(own, tmp_path, monkeypatch):
    file = tmp_path / own
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    named = file.parent if own.endswith("__init__.py") else file
    with pytest.raises(PluginError, match=f"Python finds {named}; if that is your own, rename it, run from another folder"):
        _load(EntryPoint("hidden", "hidden.stage:STAGE", GROUP))
    sys.modules.pop("hidden")


def test_the_command_says_it_in_one_line(monkeypatch, capsys):
    def not_installed(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("refinery.runtime.recipes.stages.entry_points", lambda group: ())
    monkeypatch.setattr("refinery.runtime.recipes.stages.distribution", not_installed)
    stages.cache_clear()
    try:
        assert main(["train", "recipe.yaml"]) == 2
    finally:
        stages.cache_clear()
    assert capsys.readouterr().err == "error: no stages are declared: this checkout is not installed. Install it: pip install -e .\n"
