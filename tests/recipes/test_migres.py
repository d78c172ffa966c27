"""MIGRES' recipes with the paper's models: Table 11's numbers, and runs on the sample with tiny models in place of the paper's."""

import re
from pathlib import Path

import pytest

from infer.__main__ import main
from infer.recipe import InferRecipe
from refinery.contract.records import read_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.runtime.recipe import load_recipe

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "recipes" / "sample" / "data"
# By recipe: T, delta, and a file of the sample's in place of its questions.
PAPER = {
    "paper_multi_hop": (5, 3.0, "hotpotqa/test.json"),
    "paper_open_domain": (3, 5.0, "musique/test.jsonl"),
    "paper_strategyqa": (5, 0.0, "strategyqa/test.json"),
}


@pytest.fixture
def overrides(tmp_path, tiny_bases, tiny_t5s, tiny_encoder):
    """By recipe the overrides that put tiny models and the sample in place of the paper's models and data."""
    from refinery.llms.weights.checkpoint import load_base

    for part in load_base(str(tiny_encoder), family="classifier", labels=["score"]):
        part.save_pretrained(tmp_path / "cross_encoder")
    return lambda name: [
        str(ROOT / "recipes" / "migres" / f"{name}.yaml"),
        f"questions=[{SAMPLE / PAPER[name][2]}]",
        "reader=by_folder",
        "limit=2",
        "retriever={name: candidates}",
        "endpoint=null",
        f"llm={{base: {tiny_bases['tied']}}}",
        f"sub_models.entailment={{base: {tiny_t5s['untied']}}}",
        f"options.cross_encoder.model={tmp_path / 'cross_encoder'}",
        "options.relevance_threshold=-100",
        "options.max_reply_tokens=4",
        f"output_dir={tmp_path / 'run'}",
    ]


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_hyper_parameters_are_table_11s(name):
    recipe = load_recipe(ROOT / "recipes" / "migres" / f"{name}.yaml", InferRecipe)
    options, (iterations, delta, _) = recipe.decoder_options(name), PAPER[name]
    assert (options.max_iterations, options.relevance_threshold) == (iterations, delta)
    assert (options.passages_in_prompt, recipe.passages_per_query) == (5, 50)
    assert (options.reranker, options.cross_encoder.model) == ("cross_encoder", "BAAI/bge-reranker-base")
    assert (options.entailment, recipe.sub_models["entailment"].base) == ("nli", "google/t5_xxl_true_nli_mixture")


@pytest.mark.parametrize("name", PAPER)
def test_a_dry_run_of_the_papers_recipe_loads_no_model(name, overrides, capsys):
    kept = [value for value in overrides(name) if not re.match(r"endpoint|llm|sub_models|options\.cross_encoder", value)]
    assert main([*kept, "--dry-run"]) == 0
    assert "google/t5_xxl_true_nli_mixture" in (shown := capsys.readouterr().out)
    assert "--- question 2" in shown


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_recipe_runs_with_tiny_models_in_place_of_the_papers(name, overrides, tmp_path):
    pytest.importorskip("sentence_transformers")
    assert main(overrides(name)) == 0
    predictions = list(read_records(tmp_path / "run" / PREDICTIONS_FILE, Prediction))
    assert len(predictions) == 2
    for prediction in predictions:
        first = next(step.passages for step in prediction.trace if step.name == "filter")
        assert 0 < len(first) <= 5
        assert [passage.retrieval_score for passage in first] != [1 / position for position in range(1, len(first) + 1)]
