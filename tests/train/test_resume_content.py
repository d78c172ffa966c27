"""Training goes on only with what it was begun with, and a start that came to nothing is not in the way of the next."""

import shutil

import pytest
import torch
from helpers.family_rows import recipe_values
from safetensors.torch import load_file, save_file

from refinery.errors import HubError, RunDirError
from train.launch.launch import launch_from_env
from train.recipe import TrainRecipe
from train.run import run


@pytest.fixture
def values(tmp_path, tiny_encoder):
    """Of a relevance judge trained for a step, on a base of its own."""
    base = shutil.copytree(tiny_encoder, tmp_path / "base")
    return recipe_values(tmp_path, task="relevance", base=base, family="classifier", max_steps=1)


@pytest.fixture
def unfinished(values):
    """A run that has its checkpoint and no metrics."""
    recipe = TrainRecipe.model_validate(values)
    run(recipe, resume=False)
    (recipe.output_dir / "metrics.json").unlink()
    return recipe


@pytest.mark.parametrize("finished", [True, False])
def test_other_data_under_the_same_name_is_not_gone_on_with(unfinished, finished):
    if finished:
        run(unfinished, resume=True)
    data = unfinished.data[0]
    data.write_text("".join(data.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(RunDirError, match=rf"over other content \(changed: {data}\)"):
        run(unfinished, resume=True)


def test_another_base_under_the_same_name_is_not_gone_on_with(unfinished, tmp_path):
    file = tmp_path / "base" / "model.safetensors"
    save_file({name: torch.zeros_like(weights) for name, weights in load_file(file).items()}, file, metadata={"format": "pt"})
    with pytest.raises(RunDirError, match=rf"over other content \(changed: base {unfinished.base}\)"):
        run(unfinished, resume=True)


def test_another_number_of_processes_does_not_go_on_with_it(unfinished, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    launch_from_env.cache_clear()
    try:
        with pytest.raises(RunDirError, match=r"over other content \(changed: number of processes\)"):
            run(unfinished, resume=True)
    finally:
        launch_from_env.cache_clear()


def test_a_first_start_that_trained_nothing_is_not_in_the_way_of_the_second(values):
    recipe = TrainRecipe.model_validate(values)
    with pytest.raises(HubError):
        run(recipe.model_copy(update={"hub": TrainRecipe.model_validate(values | {"hub": {"to": "owner/name"}}).hub}), resume=False)
    assert not (recipe.output_dir / "run.json").exists()
    assert run(recipe, resume=False)["steps"] == 1
