"""The study's script for a GPU, without a GPU and without a model: what it trains and answers, in which order, and what it keeps."""

import gzip
import json
import subprocess
from itertools import groupby
from pathlib import Path

import pytest
from helpers.real_study import ROOT, STUDY

from infer.recipe import InferRecipe
from recipes.real.answers import expand, keep
from refinery.runtime.recipe import load_recipe
from train.recipe import TrainRecipe

# What stands in for Python: it only notes what it is called with.
_STUB = """#!/bin/bash
printf '%s\\0' "$@" >>"$NOTES"; printf '\\x1e' >>"$NOTES"
"""
MODELS = ["rag_3", "rq_rag", "rag_6", "rag_10"]  # that are trained


@pytest.fixture
def gpu_script(tmp_path):
    """Run the script in a checkout without any run; gives what it prints, and the commands that it calls."""
    (tmp_path / "python").write_text(_STUB)
    (tmp_path / "python").chmod(0o755)

    def script(*arguments, **variables):
        notes = tmp_path / "notes"
        notes.write_text("")
        environment = {"PATH": "/usr/bin:/bin", "PYTHON": f"{tmp_path}/python", "NOTES": str(notes), "RESULTS": f"{tmp_path}/results"}
        environment["SIDE_BY_SIDE"] = ""  # the notes of two commands would mix
        command = ["bash", STUDY / "gpu.sh", tmp_path / "out", *arguments]
        done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=False, cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout, [noted.split("\0")[:-1] for noted in notes.read_text().split("\x1e")[:-1]]

    return script


def runs_of(command):
    """The recipes of one call of `answers.py`, with their overrides."""
    parts = [list(part) for mark, part in groupby(command, key=lambda word: word == "--") if not mark]
    return [load_recipe(ROOT / words[0], InferRecipe, words[1:]) for words in parts[1:]]


def answered(commands):
    return [recipe for command in commands if command[0].endswith("answers.py") for recipe in runs_of(command)]


def trained(commands):
    calls = [command for command in commands if "train" in command]
    return [load_recipe(ROOT / call[2], TrainRecipe, [word for word in call[3:] if "=" in word]) for call in calls]


def test_every_model_is_trained_once_a_seed_and_then_answers(gpu_script):
    _, commands = gpu_script()
    assert [recipe.output_dir.name for recipe in trained(commands)] == [f"{model}_s{seed}" for seed in (42, 1, 2) for model in MODELS]
    assert all(recipe.packing and recipe.strategy == "full" and recipe.dtype == "bfloat16" for recipe in trained(commands))
    recipes = answered(commands)
    assert len({recipe.output_dir for recipe in recipes}) == len(recipes) == 3 + 4 + 3 * 16
    made = {str(recipe.output_dir) for recipe in trained(commands)}
    assert all(recipe.llm.base in made or recipe.name in ("direct", "rag", "re_thinking", "migres") for recipe in recipes)


def test_each_setting_searches_its_own_corpus_and_asks_its_own_questions(gpu_script):
    for recipe in answered(gpu_script(SEEDS="42")[1]):
        setting = recipe.output_dir.parent.name
        searched = {"closed": None, "open": "bm25", "own": "candidates"}[setting.removeprefix("validation_")]
        assert (recipe.retriever and recipe.retriever.name) == searched
        assert {path.stem for path in recipe.questions} == {"validation" if setting.startswith("validation") else "test"}


def test_the_baselines_at_the_cost_of_a_tree_use_the_reader_that_was_trained_for_them(gpu_script):
    found = {recipe.name: recipe for recipe in answered(gpu_script(SEEDS="1", MODELS="rag_3 rag_6")[1])}
    consistency, iterative = found["self_consistency_40_s1"], found["iterative_s1"]
    assert (consistency.decoder, Path(consistency.llm.base).name, consistency.passages_per_query) == ("self_consistency", "rag_3_s1", 3)
    assert (iterative.decoder, Path(iterative.llm.base).name, iterative.passages_per_query) == ("iter_retgen", "rag_6_s1", 3)
    assert iterative.decoder_options("").reads == "all"


def test_what_has_results_is_not_done_again(gpu_script, tmp_path):
    for recipe in answered(gpu_script(SEEDS="42", MODELS="untrained rag_3")[1]):
        folder = tmp_path / "results" / recipe.output_dir.parent.name / recipe.output_dir.name
        if folder.name != "rag_tuned_3_s42" or folder.parent.name == "own":
            folder.mkdir(parents=True)
            (folder / "metrics.json").write_text("{}")
    told, commands = gpu_script(SEEDS="42", MODELS="untrained rag_3")
    assert [recipe.output_dir.name for recipe in trained(commands)] == ["rag_3_s42"]
    assert [str(recipe.output_dir)[-20:] for recipe in answered(commands)] == ["open/rag_tuned_3_s42"]
    assert told.splitlines()[-1].endswith("1 left: open rag_tuned_3_s42")


def test_nothing_is_begun_that_the_time_does_not_allow(gpu_script):
    told, commands = gpu_script(MINUTES="2", SEEDS="42", MODELS="rag_3")
    assert commands == []
    assert "rag_3, seed 42: not begun, no time left" in told


def test_labels_and_index_are_prepared_without_a_gpu(gpu_script):
    _, commands = gpu_script("prepare", SOURCE="somewhere")
    assert [command[0].rpartition("/")[2] if command[0] != "-m" else command[1] for command in commands] == [
        "rows.py",
        "model.py",
        "refinery.cli",
        *["distill"] * 4,
    ]


def finished(folder, **metrics):
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps({"questions": 200, "failed": 0} | metrics))
    (folder / "run.json").write_text("{}")
    (folder / "scores.jsonl").write_text('{"question_id": "q"}\n')
    return folder


def test_what_is_small_of_a_finished_run_is_kept_and_can_be_expanded(tmp_path):
    assert keep(finished(tmp_path / "runs/own/rag", failed=2), tmp_path / "results")
    assert gzip.decompress((tmp_path / "results/own/rag/scores.jsonl.gz").read_bytes()) == b'{"question_id": "q"}\n'
    expand(tmp_path / "results", tmp_path / "expanded")
    assert (tmp_path / "expanded/own/rag/scores.jsonl").read_text() == '{"question_id": "q"}\n'


def test_a_run_with_many_failed_questions_is_not_finished(tmp_path):
    assert not keep(finished(tmp_path / "runs/own/rag", failed=3), tmp_path / "results")
    assert not (tmp_path / "results").exists()
