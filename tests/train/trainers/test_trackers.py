"""`report_to`: what a tracker gets of a training, through the integration of transformers."""

import importlib
import sys
from importlib.util import find_spec

import pytest
import yaml
from helpers.family_rows import recipe_values

from refinery.errors import RecipeError
from train.__main__ import main
from train.recipe import TrainRecipe
from train.run import run

# The part of trackio's interface that transformers calls, with memory instead of a dashboard.
TRACKIO = """
class _Variable:
    def get(self):
        return None

class context_vars:
    current_space_id = current_project = current_run = _Variable()

started, logged, config, finished = [], [], {}, []

class _Config(dict):
    def update(self, values, allow_val_change):
        super().update(values)

config = _Config()

def init(**values):
    started.append(values)

def log(values):
    logged.append(values)

def finish():
    finished.append(True)
"""


@pytest.fixture
def values(tiny_bases, tmp_path):
    given = recipe_values(tmp_path, task="self_knowledge", base=tiny_bases["tied"], max_length=512)
    return given | {"max_steps": 3, "logging_steps": 1, "eval_steps": 2, "validation": given["data"]}


@pytest.fixture
def trackio(tmp_path, monkeypatch):
    """A module of this name that remembers what it was sent."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/trackio.py").write_text(TRACKIO)
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    importlib.invalidate_caches()
    yield importlib.import_module("trackio")
    del sys.modules["trackio"]


def test_a_tracker_gets_the_losses_and_scores_of_each_step_under_the_runs_name(values, trackio):
    settings = TrainRecipe.model_validate(values | {"report_to": ["trackio"]})
    settings.check("recipe.yaml")
    run(settings, resume=False)
    assert [started["name"] for started in trackio.started] == [str(settings.output_dir)]
    losses = {row["train/global_step"]: row["train/loss"] for row in trackio.logged if "train/loss" in row}
    assert list(losses) == [1, 2, 3]
    assert any("eval/accuracy" in row for row in trackio.logged)
    assert trackio.finished == [True]


def test_by_default_nothing_is_sent_anywhere(values, trackio):
    run(TrainRecipe.model_validate(values), resume=False)
    assert trackio.started == []


@pytest.mark.parametrize("tracker", ["wandb", "tensorboard"])
def test_a_tracker_that_is_not_installed_is_one_line(values, tracker, tmp_path, capsys):
    if find_spec(tracker) or find_spec(f"{tracker}X"):
        pytest.skip(f"{tracker} is installed here")
    settings = TrainRecipe.model_validate(values | {"report_to": [tracker]})
    with pytest.raises(RecipeError, match=f"'{tracker}' is a package that is not installed. Install it: pip install {tracker}"):
        settings.check("recipe.yaml")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(settings.model_dump(mode="json")))
    assert main([str(tmp_path / "recipe.yaml")]) == 2
    assert "report_to" in capsys.readouterr().err
    assert not settings.output_dir.exists()


def test_an_unknown_tracker_is_refused(values):
    with pytest.raises(ValueError, match="report_to"):
        TrainRecipe.model_validate(values | {"report_to": ["excel"]})
