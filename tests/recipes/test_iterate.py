"""The recipes of `refinery iterate`: each of their rounds consists of valid runs."""

import re
import shlex
from pathlib import Path

import pytest

from distill.recipe import DistillRecipe
from infer.recipe import InferRecipe
from refinery.cli import main
from refinery.iteration.overlap import check_overlap
from refinery.iteration.recipe import IterateRecipe
from refinery.iteration.rounds import jobs_for, round_steps
from refinery.runtime.recipe import load_recipe
from train.recipe import TrainRecipe

ROOT = Path(__file__).parents[2]
STAGES = {"distill": DistillRecipe, "train": TrainRecipe, "infer": InferRecipe}


@pytest.mark.parametrize("path", sorted(ROOT.glob("recipes/*/iterate*.yaml")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_run_of_a_round_is_a_valid_recipe(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    recipe = load_recipe(path, IterateRecipe)
    recipe.check(str(path))
    jobs = jobs_for(recipe, round_steps(recipe, 0) | round_steps(recipe, 2))
    stages = {job.name: load_recipe(job.words[0], STAGES[job.stage], job.words[1:]) for job in jobs.values() if job.stage}
    for name, stage in stages.items():
        stage.check(name)
    assert {type(stage) for stage in stages.values()} == set(STAGES.values())
    assert stages["2_sample"].samples > 1
    assert not {*stages["2_sample"].questions} & {*recipe.validation, *recipe.test}


def test_the_study_learns_from_no_question_that_is_tested(tmp_path, monkeypatch):
    path = ROOT / "recipes/real/iterate.yaml"
    split = re.search(r"#   refinery (split .*) --output (runs/real/questions)$", path.read_text(), re.MULTILINE)
    monkeypatch.chdir(ROOT)
    assert main([*shlex.split(split[1]), "--output", str(tmp_path)]) == 0
    named = {"questions": "train", "validation": "validation", "test": "test"}
    recipe = load_recipe(path, IterateRecipe, [f"{key}=[{tmp_path / name}.jsonl]" for key, name in named.items()])
    check_overlap(recipe)
