"""Bases that are not plain whole decoders: hybrids, adapters, and models without a token that pads."""

import json

import pytest
import torch
from helpers.family_rows import ROWS, recipe_values
from transformers import AutoConfig, AutoModelForCausalLM

from refinery.contract.records import write_records
from refinery.errors import CheckpointError, RecipeError
from train.recipe import TrainRecipe
from train.run import run

HYBRID = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.fixture
def recipe(tmp_path, tiny_bases):
    def build(task: str = "refinement", **changes) -> TrainRecipe:
        write_records(tmp_path / f"{task}.jsonl", ROWS[task])
        values = recipe_values(tmp_path, task=task, base=tiny_bases["tied"], max_steps=1)
        return TrainRecipe.model_validate(values | {"data": [str(tmp_path / f"{task}.jsonl")]} | changes)

    return build


@pytest.fixture
def hybrid(tmp_path, tiny_tokenizer):
    """A base with convolutions beside attention, which our engine does not decode."""
    config = AutoConfig.for_model("lfm2", **HYBRID, layer_types=["conv", "full_attention"], vocab_size=len(tiny_tokenizer))
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "hybrid")
    tiny_tokenizer.save_pretrained(tmp_path / "hybrid")
    return str(tmp_path / "hybrid")


def test_a_hybrid_is_trained_and_said_to_be_served_elsewhere(recipe, hybrid, caplog):
    with caplog.at_level("INFO"):
        assert run(recipe(base=hybrid), resume=False)["steps"] == 1
    assert "it is trained here and not decoded" in caplog.text
    assert "Serve it (vLLM)" in caplog.text


def test_a_hybrid_cannot_be_validated_by_decoding_here(recipe, hybrid, tmp_path):
    with pytest.raises(RecipeError, match="validation: .* It can be trained here without validation"):
        run(recipe(base=hybrid, validation=[str(tmp_path / "refinement.jsonl")]), resume=False)


def test_an_adapter_is_no_base_before_it_is_merged(recipe, tmp_path):
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "x"}))
    with pytest.raises(CheckpointError, match="is an adapter, not a whole model. Merge it first"):
        run(recipe(base=str(tmp_path / "adapter")), resume=False)


def test_a_classifier_pads_with_what_it_was_trained_with(recipe, tmp_path, tiny_bases):
    base = tmp_path / "unpadded"
    base.mkdir()
    for file in tiny_bases["tied"].iterdir():
        (base / file.name).write_bytes(file.read_bytes())
    (base / "config.json").write_text(json.dumps(json.loads((base / "config.json").read_text()) | {"pad_token_id": None}))
    rows = [str(tmp_path / "relevance.jsonl")]
    trained = recipe("relevance", base=str(base), family="classifier", strategy="lora", validation=rows)
    assert 0 <= run(trained, resume=False)["accuracy"] <= 1
