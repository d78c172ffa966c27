"""The demo's steps fit together: recipes that are there, needs that are run, and every decoder in the table."""

from pathlib import Path

import pytest

from distill.recipe import DistillRecipe
from infer.recipe import InferRecipe
from refinery.demo.steps import core_steps, hard_steps, method_steps
from refinery.project.jobs import jobs_of
from refinery.project.project import Project
from refinery.runtime.recipe import load_recipe
from refinery.runtime.recipes.plugins import available
from train.recipe import TrainRecipe

STAGES = {"distill": DistillRecipe, "train": TrainRecipe, "infer": InferRecipe}
OUTPUT = Path("runs/somewhere")
JOBS = jobs_of(Project(steps=core_steps(3, OUTPUT, 8765) | method_steps(3, OUTPUT, 8765)), where="demo")
HARD = jobs_of(Project(steps=hard_steps(3, OUTPUT, 8765)), where="demo")
# One decodes a released checkpoint, which no tiny base imitates; one samples, and the demo's teacher always says the same; one needs a base
# with a chat template.
NOT_SHOWN = {"self_rag", "self_consistency", "tool_search"}


def recipe_of(job):
    return load_recipe(job.words[0], STAGES[job.stage], job.words[1:])


@pytest.mark.parametrize("job", [*JOBS.values(), *HARD.values()], ids=lambda job: job.name)
def test_a_step_is_a_valid_recipe_and_writes_into_the_demos_folder(job):
    recipe = recipe_of(job)
    assert recipe.output_dir.is_relative_to(OUTPUT)
    if isinstance(recipe, InferRecipe):
        assert recipe.decoder_options(job.name)


@pytest.mark.parametrize(
    ("step", "needs"),
    [
        ("train_relevance", {"distill_relevance"}),
        ("infer_ra_isf", {"train_self_knowledge", "train_relevance", "train_decomposition"}),
        ("infer_rq_rag", {"train_refinement"}),
        ("infer_rag", set()),
        ("train_migres", {"distill_migres"}),
        ("distill_migres", {"infer_migres_traces"}),
        ("infer_rq_rag_learned", {"train_refinement", "train_selection"}),
        ("infer_confusable", {"train_refinement", "train_selection"}),
        ("infer_skr", {"distill_self_knowledge"}),
    ],
)
def test_a_step_waits_for_what_it_reads(step, needs):
    assert set(JOBS[step].needs) == needs


def test_no_step_trains_on_held_out_questions():
    for job in (*JOBS.values(), *HARD.values()):
        reads_test = any("test.jsonl" in override for override in job.words[1:])
        assert reads_test == (job.stage == "infer" and job.output.parent.name != "traces")


def test_all_methods_run_every_decoder():
    decoders = set(available("infer.decoders"))
    assert {recipe_of(job).decoder for job in JOBS.values() if job.stage == "infer"} == decoders - NOT_SHOWN
