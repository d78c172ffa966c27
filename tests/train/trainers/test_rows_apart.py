"""Rows that share a sequence are computed as the same rows apart, whatever the family, or refused before the first step."""

from types import SimpleNamespace

import pytest
import torch
from helpers.decoder_families import FAMILIES, family_config
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from refinery.contract.segments import EncodedRow
from refinery.errors import RecipeError
from train.recipe import TrainRecipe
from train.rows.document_attention import register
from train.rows.packing import PackingCollator, build_dataset
from train.trainers.rows_apart import CheckPadding, CheckSharedPrefixes, KeepRowsApart

ROWS = [EncodedRow(ids, ids, ["prompt"] * len(ids), "q") for ids in ([*range(n, n + 20)] for n in (5, 40, 80, 120, 160))]
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}
# Families that read joined rows' boundaries from nothing that transformers is given.
HARD = {
    "gpt-oss": FAMILIES["gpt-oss"],
    "nemotron": ("nemotron", SHAPE | {"intermediate_size": 64, "num_key_value_heads": 2}),
    "stablelm": ("stablelm", SHAPE | {"intermediate_size": 64, "num_key_value_heads": 4}),
    "falcon": ("falcon", SHAPE),
    "mpt": ("mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 512, "initializer_range": 0.3}),
}
SHORT_CONVOLUTION = ("lfm2", SHAPE | {"intermediate_size": 64, "num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]})
ALIBI = ("bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3})


def model_of(family, tokenizer, attention, dtype=torch.float32):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(family_config(*family, tokenizer)).to(dtype).eval()
    model.set_attn_implementation(register() if attention == "sdpa" else attention)
    return model


def recipe_of(attention, **values):
    fixed = {"task": "self_knowledge", "base": "b", "data": ["x"], "output_dir": "out", "learning_rate": 1e-3, "max_length": 64}
    return TrainRecipe.model_validate({"padding_free": True, "dtype": "float32", "attn_implementation": attention, **fixed, **values})


def begin(check, model):
    check.on_train_begin(SimpleNamespace(per_device_train_batch_size=2, device="cpu"), None, None, model=model)


def logits(model, **batch):
    with torch.no_grad():
        return model(**batch, use_cache=False).logits[0]


@pytest.mark.parametrize(("name", "attention"), [(name, "eager") for name in HARD] + [(name, "sdpa") for name in HARD if name != "gpt-oss"])
def test_joined_rows_are_computed_as_the_same_rows_apart(tiny_tokenizer, name, attention):
    model = model_of(HARD[name], tiny_tokenizer, attention)
    begin(KeepRowsApart(ROWS, recipe_of(attention)), model)
    batch = PackingCollator(0, joined=True)(list(build_dataset(ROWS)))
    joined = logits(model, **{key: value for key, value in batch.items() if key not in ("labels", "kinds", "supervised")})
    apart = torch.cat([logits(model, input_ids=torch.tensor([row.input_ids])) for row in ROWS])
    torch.testing.assert_close(joined, apart, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", [SHORT_CONVOLUTION, ALIBI])
def test_a_model_that_carries_something_from_row_to_row_is_refused(tiny_tokenizer, family, dtype):
    model = model_of(family, tiny_tokenizer, "eager", getattr(torch, dtype))
    with pytest.raises(RecipeError, match=rf"padding_free: {family[0]} with attn_implementation: eager does not keep joined rows apart"):
        begin(KeepRowsApart(ROWS, recipe_of("eager", dtype=dtype)), model)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FAMILIES)
def test_rounding_is_no_leak(tiny_tokenizer, name, dtype):
    attention = "eager" if name in ("gpt-oss", "gemma-2") else "sdpa"
    model = model_of(FAMILIES[name], tiny_tokenizer, attention, getattr(torch, dtype))
    begin(KeepRowsApart(ROWS, recipe_of(attention, dtype=dtype)), model)


def test_rows_are_not_joined_beyond_a_chunk_of_attention(tiny_tokenizer):
    model = model_of(FAMILIES["llama-2"], tiny_tokenizer, "sdpa")
    model.config.attention_chunk_size = 100
    with pytest.raises(RecipeError, match="packing: llama .* is cut into chunks of 100 tokens"):
        begin(KeepRowsApart(ROWS, recipe_of("sdpa", packing=True)), model)


def grpo_recipe(**values):
    return recipe_of("eager", method="grpo", padding_free=False, **values)


def test_texts_that_share_a_prefix_are_refused_where_the_model_takes_no_mask_of_a_tree(tiny_tokenizer):
    begin(CheckSharedPrefixes(ROWS, grpo_recipe(task="refinement")), model_of(FAMILIES["gpt-oss"], tiny_tokenizer, "eager"))
    model = model_of(ALIBI, tiny_tokenizer, "eager")
    for values, key in (
        ({"task": "refinement", "grpo": {"share_prefixes": True}}, "grpo: share_prefixes"),
        ({"task": "decomposition"}, "task"),
    ):
        with pytest.raises(RecipeError, match=f"{key}: bloom .* does not keep texts apart that share a prefix"):
            begin(CheckSharedPrefixes(ROWS, grpo_recipe(**values)), model)


def encoder(family, tokenizer):
    torch.manual_seed(0)
    config = family_config(family, SHAPE | {"intermediate_size": 64, "num_labels": 2}, tokenizer)
    return AutoModelForSequenceClassification.from_config(config).eval()


@pytest.mark.parametrize("family", ["bert", "modernbert"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_encoder_that_leaves_padding_out_is_trained(tiny_tokenizer, family, dtype):
    recipe = recipe_of("sdpa", padding_free=False, family="classifier", dtype=dtype)
    begin(CheckPadding(ROWS, recipe, tiny_tokenizer.pad_token_id), encoder(family, tiny_tokenizer).to(getattr(torch, dtype)))


@pytest.mark.parametrize("family", ["fnet", "convbert"])
def test_an_encoder_that_reads_padding_is_refused(tiny_tokenizer, family):
    recipe = recipe_of("sdpa", padding_free=False, family="classifier")
    with pytest.raises(RecipeError, match=f"base: {family} reads the padding of a batch"):
        begin(CheckPadding(ROWS, recipe, tiny_tokenizer.pad_token_id), encoder(family, tiny_tokenizer))
