"""Each way a base holds control tokens, and which adapters a base can take."""

import json
from copy import deepcopy

import pytest
import torch
from helpers.strategy_runs import assert_close, logits, trained
from helpers.tiny_llama import saved_llama

from refinery.contract.control_tokens import MANIFEST_FILE, RQ_RAG
from refinery.contract.segments import encode_text
from refinery.errors import CheckpointError
from refinery.llms.weights.checkpoint import load_base, load_checkpoint, load_with_adapters
from train.families.model import build_model, save_model
from train.recipe import TrainRecipe


@pytest.fixture(scope="module")
def reserved_base(tiny_tokenizer, tmp_path_factory):
    """A base as Llama 3 is: ids kept free under names of their own, and no padding token."""
    tokenizer = deepcopy(tiny_tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": [f"<|reserved_special_token_{i}|>" for i in range(12)]})
    tokenizer.pad_token = None
    return saved_llama(tmp_path_factory.mktemp("base") / "reserved", tokenizer, tie_word_embeddings=False)


@pytest.fixture(scope="module")
def reserved_run(recipe, reserved_base):
    """A LoRA run over the base with reserved ids: its recipe, then what `trained` gives."""
    settings = recipe(base=str(reserved_base))
    return settings, *trained(settings)


def test_reserved_ids_become_the_control_tokens_and_nothing_is_resized(reserved_run, reserved_base):
    _, model, tokenizer, _, _ = reserved_run
    base, before = load_base(str(reserved_base))
    free = [before.convert_tokens_to_ids(f"<|reserved_special_token_{i}|>") for i in range(8)]
    assert [tokenizer.convert_tokens_to_ids(token.token) for token in RQ_RAG] == free
    assert len(tokenizer) == len(before)
    assert model.get_input_embeddings().weight.shape == base.get_input_embeddings().weight.shape


def test_a_padding_token_takes_a_reserved_id_too(reserved_run):
    _, _, tokenizer, _, _ = reserved_run
    assert tokenizer.pad_token == "<pad>"
    assert tokenizer.convert_tokens_to_ids("<|reserved_special_token_9|>") is not None
    assert tokenizer.convert_tokens_to_ids("<|reserved_special_token_9|>") < len(tokenizer)


def test_a_reserved_row_starts_as_its_description(recipe, reserved_base):
    model, tokenizer = build_model(recipe(base=str(reserved_base), strategy="full"))
    for weight in (model.get_input_embeddings().weight, model.get_output_embeddings().weight):
        for token in RQ_RAG:
            described = weight[encode_text(token.init_text, tokenizer)].mean(dim=0)
            torch.testing.assert_close(weight[tokenizer.convert_tokens_to_ids(token.token)], described)


def test_a_reserved_run_loads_on_its_base_by_one_call(reserved_run):
    settings, model, tokenizer, rows, moved = reserved_run
    loaded, again = load_checkpoint(str(settings.output_dir))
    assert again.get_vocab() == tokenizer.get_vocab()
    assert_close(logits(loaded, rows), logits(model, rows))
    assert all("lora_" in name or "trainable_tokens_delta" in name for name in moved)
    manifest = json.loads((settings.output_dir / MANIFEST_FILE).read_text())
    assert [row["id"] for row in manifest["control_tokens"]] == [tokenizer.convert_tokens_to_ids(token.token) for token in RQ_RAG]


def test_a_renamed_token_in_a_passage_stays_text(reserved_run):
    _, _, tokenizer, rows, _ = reserved_run
    answer = tokenizer.convert_tokens_to_ids("[A_Response]")
    assert all(row.input_ids.count(answer) == 1 for row in rows)
    assert answer not in encode_text("[A_Response]", tokenizer)


def test_an_extended_base_keeps_its_control_tokens_and_trains_their_rows(recipe):
    """A checkpoint that has the control tokens is trained further, not begun again."""
    first = recipe(strategy="full")
    model, _, _, _ = trained(first)
    further, tokenizer = build_model(recipe(base=str(first.output_dir)))
    ids = [tokenizer.convert_tokens_to_ids(token.token) for token in RQ_RAG]
    assert torch.equal(further.get_base_model().get_output_embeddings().weight[ids], model.get_output_embeddings().weight[ids])
    assert further.get_input_embeddings().token_adapter.token_indices["default"] == ids


def saved(recipe: TrainRecipe) -> str:
    model, tokenizer = build_model(recipe)
    save_model(model, tokenizer, recipe, recipe.output_dir)
    return str(recipe.output_dir)


def test_an_adapter_on_a_base_of_another_vocabulary_is_refused(recipe, reserved_base):
    folder = saved(recipe())
    with pytest.raises(
        CheckpointError, match=r"was trained on a base with 1,856 token embeddings, .*reserved has 1,868. Load it on .*untied"
    ):
        load_with_adapters(str(reserved_base), {"refinement": folder})


def test_an_adapter_loads_on_the_extended_base_too(recipe):
    extended = recipe(strategy="full", max_steps=1)
    folder = saved(extended)
    model, tokenizer = load_with_adapters(folder, {"refinement": saved(recipe())})
    assert model.get_input_embeddings().weight.shape[0] == 1920
    assert len(tokenizer) == 1864


def test_token_rows_without_a_tokenizer_are_refused_by_their_row(recipe, tiny_bases):
    settings = recipe()
    folder = saved(settings)
    for path in settings.output_dir.glob("tokenizer*"):
        path.unlink()
    (settings.output_dir / MANIFEST_FILE).unlink()
    with pytest.raises(CheckpointError, match="trains the row of token 1,863, but .* has 1,856 and the adapter.s folder has no tokenizer"):
        load_with_adapters(str(tiny_bases["untied"]), {"refinement": folder})


def test_an_adapter_of_another_width_is_refused_in_one_line(recipe, tiny_tokenizer, tmp_path):
    wide = saved_llama(tmp_path / "wide", tiny_tokenizer, hidden_size=64)
    with pytest.raises(CheckpointError, match="does not fit .*wide") as caught:
        load_with_adapters(str(wide), {"default": saved(recipe(task="self_knowledge"))})
    assert len(str(caught.value).splitlines()) == 1


def test_adapters_that_cannot_share_a_batch_are_refused(recipe):
    generator, judge = saved(recipe()), saved(recipe(task="self_knowledge"))
    with pytest.raises(CheckpointError, match="trains token rows and .* does not, so PEFT cannot mix them"):
        load_with_adapters(recipe().base, {"refinement": generator, "self_knowledge": judge})


def test_rows_that_only_round_up_are_the_same_whenever_a_base_is_extended(recipe):
    one, _ = build_model(recipe(strategy="full"))
    other, _ = load_checkpoint(saved(recipe()))
    assert torch.equal(one.get_output_embeddings().weight[1864:], other.get_output_embeddings().weight[1864:])
