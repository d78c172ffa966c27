"""The demo's stage runs fit together: recipes that are there, needs that are run, and every decoder in the table."""

from pathlib import Path

import pytest

from distill.recipe import DistillRecipe
from infer.recipe import InferRecipe
from refinery.demo.jobs import core_jobs, method_jobs
from refinery.runtime.plugins import available
from refinery.runtime.recipe import load_recipe
from refinery.runtime.shipped import shipped
from train.recipe import TrainRecipe

STAGES = {"distill": DistillRecipe, "train": TrainRecipe, "infer": InferRecipe}
OUTPUT = Path("runs/somewhere")
JOBS = core_jobs(3, OUTPUT, 8765) + method_jobs(3, OUTPUT, 8765)
CHECKPOINT_ONLY = {"self_rag"}  # decodes one released checkpoint, which no tiny base imitates


def recipe_of(job):
    path = shipped(f"recipes/demo/{job.recipe or job.name}.yaml")
    return load_recipe(path, STAGES[job.name.partition("/")[0]], list(job.overrides))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_names_its_recipe_and_writes_into_the_demos_folder(job):
    recipe = recipe_of(job)
    assert recipe.output_dir.is_relative_to(OUTPUT)
    if isinstance(recipe, InferRecipe):
        assert recipe.decoder_options(job.name)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_what_a_job_reads_is_written_by_what_it_needs(job):
    by_name = {other.name: recipe_of(other).output_dir for other in JOBS}
    needed = {by_name[name] for name in job.needs}
    given = {part.strip("[]") for override in job.overrides for part in override.partition("=")[2].split(", ")}
    read = {str(path) for name in given for path in (Path(name), *Path(name).parents)}
    folders = {folder for folder in by_name.values() if str(folder) in read} - {by_name[job.name]}
    assert folders == needed


def test_no_job_trains_on_held_out_questions():
    for job in JOBS:
        reads_test = any("test.jsonl" in override for override in job.overrides)
        assert reads_test == (job.name.startswith("infer/") and recipe_of(job).output_dir.parent.name != "traces")


def test_all_methods_run_every_decoder():
    decoders = set(available("infer.decoders"))
    assert {recipe_of(job).decoder for job in JOBS if job.name.startswith("infer/")} == decoders - CHECKPOINT_ONLY


def test_no_two_jobs_write_to_one_folder():
    folders = [recipe_of(job).output_dir for job in JOBS]
    assert len(set(folders)) == len(folders)
