"""Bases that are not plain whole decoders: hybrids, adapters, and models without a token that pads."""

import json

import pytest
import torch
from helpers.family_rows import ROWS, recipe_values
from helpers.tiny_llama import saved_llama
from helpers.tool_templates import tool_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

from refinery.contract.records import write_records
from refinery.errors import CheckpointError, RecipeError
from train.planning.base import base_lines
from train.recipe import TrainRecipe
from train.run import run

SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
LINEAR = {"layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 2, "head_dim": 8}
LINEAR |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
HYBRIDS = {"lfm2": {"layer_types": ["conv", "full_attention"]}, "qwen3_next": LINEAR | EXPERTS, "qwen3_5_text": LINEAR}


@pytest.fixture
def recipe(tmp_path, tiny_bases):
    def build(task: str = "refinement", **changes) -> TrainRecipe:
        write_records(tmp_path / f"{task}.jsonl", ROWS[task])
        values = recipe_values(tmp_path, task=task, base=tiny_bases["tied"], max_steps=1)
        return TrainRecipe.model_validate(values | {"data": [str(tmp_path / f"{task}.jsonl")]} | changes)

    return build


def saved_hybrid(folder, kind, tokenizer) -> str:
    """A base with convolutions or linear attention beside attention, which our engine does not decode."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SHAPE | HYBRIDS[kind], vocab_size=len(tokenizer))
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def hybrid(tmp_path, tiny_tokenizer):
    return saved_hybrid(tmp_path / "hybrid", "lfm2", tiny_tokenizer)


def test_a_hybrid_is_trained_and_said_to_be_served_elsewhere(recipe, hybrid, caplog):
    with caplog.at_level("INFO"):
        assert run(recipe(base=hybrid), resume=False)["steps"] == 1
    assert "it is trained here and not decoded" in caplog.text
    assert "Set `engine: vllm`, or serve it and name the server as the recipe's `endpoint`" in caplog.text


@pytest.mark.parametrize("kind", ["qwen3_next", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("lfm2", "qwen3_5_text"))])
def test_a_hybrid_learns_tool_calls_in_its_own_template(recipe, tmp_path, kind):
    base = saved_hybrid(tmp_path / "hybrid", kind, tool_tokenizer("qwen2_5"))
    assert run(recipe(base=base, format="tools", max_length=2048), resume=False)["train_loss_query"] > 0


def test_a_dry_run_says_what_a_hybrid_is_good_for(recipe, hybrid):
    uses, *reasons = base_lines(recipe(base=hybrid))
    assert uses == "base         lfm2: train yes, decode no, tree decode no, merge yes, tool calls no"
    assert [reason.partition(":")[0].strip() for reason in reasons] == ["no decode, tree decode", "no tool calls"]


def test_a_dry_run_says_what_a_plain_decoder_with_a_template_is_good_for(recipe, tmp_path):
    base = saved_llama(tmp_path / "base", tool_tokenizer("qwen2_5"))
    assert base_lines(recipe(base=str(base))) == ["base         llama: train yes, decode yes, tree decode yes, merge yes, tool calls yes"]


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
