"""Checkpoints of a model whose embeddings are tied: what is loaded from them, and what is warned of."""

import logging
from typing import Any

import pytest
import torch
from helpers.family_rows import ROWS, SHORT_RUN
from safetensors.torch import load_file

from refinery.contract.records import write_records
from refinery.llms.weights.checkpoint import load_checkpoint
from train.recipe import TrainRecipe
from train.run import run
from train.trainers.tied_weights import KnowsTiedWeights


@pytest.fixture
def said(caplog, monkeypatch):
    """What transformers logs."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    return caplog


@pytest.mark.parametrize("kind", ["tied", "untied"])
def test_the_best_checkpoint_is_put_back_whole_and_nothing_is_said_to_be_missing(tiny_bases, tmp_path, monkeypatch, said, kind):
    scores = iter([0.75, 0.5, 0.25, 0.0])
    monkeypatch.setattr("train.trainers.generative_eval.evaluate_model", lambda *arguments: {"answer_exact_match": next(scores)})
    write_records(tmp_path / "rows.jsonl", ROWS["refinement"])
    own = {"task": "refinement", "strategy": "full", "base": str(tiny_bases[kind]), "output_dir": tmp_path / "run", "learning_rate": 1e-2}
    rows = {"data": [tmp_path / "rows.jsonl"], "validation": [tmp_path / "rows.jsonl"]}
    best = {"max_steps": 4, "eval_steps": 1, "metric_for_best_model": "answer_exact_match"}
    assert run(TrainRecipe.model_validate(SHORT_RUN | own | rows | best), resume=False)["best_step"] == 1
    saved = load_file(tmp_path / "run/checkpoints/checkpoint-1/model.safetensors")
    last = load_file(tmp_path / "run/checkpoints/checkpoint-4/model.safetensors")
    model, _ = load_checkpoint(str(tmp_path / "run"))
    trained = dict(model.named_parameters())
    assert trained.keys() == saved.keys()
    assert all(torch.equal(trained[name], weight) for name, weight in saved.items())
    assert not any(torch.equal(last[name], weight) for name, weight in saved.items())
    assert "missing keys" not in said.text


class _Warns:
    """What a Trainer does with the result of loading."""

    warned: Any = None

    def __init__(self, model: Any) -> None:
        self.model = model

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        self.warned = load_result.missing_keys


class _Trainer(KnowsTiedWeights, _Warns):
    pass


@pytest.mark.parametrize(
    ("kind", "left_out", "warned"),
    [
        ("tied", ["lm_head.weight"], []),
        ("tied", ["lm_head.weight", "model.norm.weight"], ["model.norm.weight"]),
        ("tied", ["lm_head.weight", "model.embed_tokens.weight"], ["model.embed_tokens.weight", "lm_head.weight"]),
        ("untied", ["lm_head.weight"], ["lm_head.weight"]),
    ],
)
def test_a_weight_that_the_checkpoint_has_under_no_name_is_missing(tiny_bases, kind, left_out, warned):
    model, _ = load_checkpoint(str(tiny_bases[kind]))
    weights = {name: weight for name, weight in model.state_dict().items() if name not in left_out}
    trainer = _Trainer(model)
    trainer._issue_warnings_after_load(model.load_state_dict(weights, strict=False))
    assert trainer.warned == warned
