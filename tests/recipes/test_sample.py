"""The sample's loop as its README gives it, on a tiny random base: real rows go through every stage."""

import json
from pathlib import Path

import pytest

from refinery.contract.records import read_records
from refinery.contract.trace import Prediction

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes" / "sample"
LABELS = {"relevance": 97, "decomposition": 72, "refinement": 80}
GROUPS = {"bridge", "comparison", "compositional", "2hop", "3hop", "multi_hop"}


def run(stage, name, *overrides):
    """Run a recipe of the sample through its stage's command; returns its exit code."""
    from refinery.cli import main

    return main([stage, f"recipes/sample/{stage}/{name}.yaml", *overrides])


def read_jsonl(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def runs(tiny_bases, tmp_path_factory):
    """The folder of a whole loop: labels, models, answers."""
    folder, base = tmp_path_factory.mktemp("sample"), tiny_bases["tied"]
    codes = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)  # the recipes name their files from here
        for task in LABELS:
            codes.append(run("distill", task, f"output_dir={folder}/labels/{task}"))
        for task in ("relevance", "decomposition", "refinement"):
            labels = f"{folder}/labels/{task}"
            held_out = [f"validation=[{labels}/test.jsonl]"] if task == "decomposition" else ["validation=[]"]
            where = [f"base={base}", f"data=[{labels}/train.jsonl]", f"output_dir={folder}/models/{task}"]
            codes.append(run("train", task, *where, *held_out, "per_device_train_batch_size=1"))
        adapters = [f"llm.adapters.{role}={folder}/models/{role}" for role in ("relevance", "decomposition")]
        ra_isf = [f"llm.base={base}", *adapters, "options.max_sub_question_tokens=16"]
        rq_rag = [f"llm.base={folder}/models/refinement", "options.max_query_tokens=8"]
        for decoder, overrides in {"ra_isf": ra_isf, "rq_rag": rq_rag}.items():
            codes.append(run("infer", decoder, *overrides, "max_new_tokens=4", f"output_dir={folder}/infer/{decoder}"))
    assert codes == [0] * 8
    return folder


@pytest.mark.parametrize("task", LABELS)
def test_as_many_questions_are_labelled_as_the_recipe_says(runs, task):
    metrics = json.loads((runs / "labels" / task / "metrics.json").read_text())
    assert metrics["questions_labelled"] == LABELS[task]
    assert f"{LABELS[task]} " in (RECIPES / "distill" / f"{task}.yaml").read_text().split("task:")[0]


def test_the_row_whose_support_is_not_in_its_context_becomes_no_trajectory(runs):
    failures = {row["question_id"]: row for row in read_jsonl(runs / "labels" / "refinement" / "failures.jsonl")}
    odd = failures["307d502e0bdb11eba7f7acde48001122"]
    assert odd["detail"] == "missed_support: no search found 307d502e0bdb11eba7f7acde48001122:Perdonami!:1"


def test_every_dataset_has_trajectories_to_train_on(runs):
    asked = {row["question_id"] for row in read_jsonl(runs / "labels" / "refinement" / "train.jsonl")}
    for folder, key in {"hotpotqa": "_id", "two_wiki": "_id", "strategyqa": "qid"}.items():
        assert asked & {row[key] for row in json.loads((RECIPES / "data" / folder / "train.json").read_text())}
    assert asked & {row["id"] for row in read_jsonl(RECIPES / "data" / "musique" / "train.jsonl")}


@pytest.mark.parametrize("task", ["relevance", "decomposition", "refinement"])
def test_every_model_trains_for_four_steps(runs, task):
    assert json.loads((runs / "models" / task / "metrics.json").read_text())["steps"] == 4


@pytest.mark.parametrize(("decoder", "system"), [("ra_isf", "ra_isf"), ("rq_rag", "rq_rag_ensemble")])
def test_every_test_question_is_answered_and_scored_by_kind(runs, decoder, system):
    metrics = json.loads((runs / "infer" / decoder / "metrics.json").read_text())
    assert metrics["questions"] == 32
    assert metrics["results"][system].keys() >= GROUPS
    assert len(read_jsonl(runs / "infer" / decoder / "predictions.jsonl")) == 32


def test_every_path_of_the_tree_searched_the_questions_own_passages(runs):
    for prediction in read_records(runs / "infer" / "rq_rag" / "predictions.jsonl", Prediction):
        assert [len(path.steps) for path in prediction.paths] == [1, 2, 2, 2]


@pytest.mark.parametrize("dataset", ["hotpotqa", "two_wiki", "musique", "strategyqa"])
def test_the_sample_is_small_and_its_source_and_licence_are_given(dataset):
    files = list((RECIPES / "data" / dataset).glob("t*.json*"))
    rows = sum(len(json.loads(p.read_text())) if p.suffix == ".json" else len(read_jsonl(p)) for p in files)
    assert 24 <= rows <= 30
    assert f"`{dataset}/" in (RECIPES / "data" / "README.md").read_text()


@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_recipe_gives_its_command_and_the_readme_too(recipe):
    command = f"refinery {recipe.parent.name} {recipe.relative_to(ROOT)}"
    assert f"#   {command}\n" in recipe.read_text()
    assert f"\n{command}\n" in (RECIPES / "README.md").read_text()
