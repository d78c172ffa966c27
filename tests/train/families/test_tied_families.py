"""Control-token rows of bases that tie their head to their embedding (Llama 3.2, SmolLM, Gemma with its scaled embedding, GPT-2)."""

import asyncio

import pytest
import torch
from helpers.decoder_families import family_model
from helpers.family_rows import ROWS, recipe_values
from safetensors import safe_open

from refinery.contract.segments import Segment
from refinery.errors import CheckpointError
from refinery.llms.engine.huggingface import HuggingFaceLLM
from refinery.llms.weights.checkpoint import load_base, load_checkpoint, load_with_adapters
from refinery.llms.weights.embeddings import embeddings_of
from train.commands.merge import merge
from train.families.causal import build_model, build_trainer, encode_rows, save_model
from train.recipe import TrainRecipe

EAGER = ("gemma-2",)  # its soft caps are known to no other kind of attention


@pytest.fixture(
    scope="module",
    params=[
        "llama-3",
        "gemma-3-vision",
        "gpt-2",
        *(pytest.param(family, marks=pytest.mark.slow) for family in ("smollm-3", "gemma-2", "gemma-3")),
    ],
)
def trained(request, tiny_tokenizer, tmp_path_factory):
    """A recipe, the model that it trained for three steps, and a row of token ids."""
    folder = tmp_path_factory.mktemp(request.param)
    family_model(request.param, tiny_tokenizer).save_pretrained(folder / "base")
    tiny_tokenizer.save_pretrained(folder / "base")
    attention = "eager" if request.param in EAGER else "sdpa"
    values = recipe_values(folder, task="refinement", base=folder / "base", max_length=512, attn_implementation=attention)
    recipe = TrainRecipe.model_validate(values)
    model, tokenizer = build_model(recipe)
    rows, _ = encode_rows(ROWS["refinement"], recipe, tokenizer)
    trainer = build_trainer(model, tokenizer, rows, recipe)
    trainer.train()
    save_model(trainer.model, tokenizer, recipe, recipe.output_dir)
    return recipe, trainer.model.eval(), rows[0].input_ids


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["llama-3", "gemma-3-vision", "gpt-2"])
def test_a_model_that_is_trained_whole_is_saved_with_each_tensor_once(kind, dtype, tiny_tokenizer, tmp_path):
    family_model(kind, tiny_tokenizer).save_pretrained(tmp_path / "base")
    tiny_tokenizer.save_pretrained(tmp_path / "base")
    values = recipe_values(tmp_path, task="refinement", base=tmp_path / "base", strategy="full", dtype=dtype, max_length=512)
    recipe = TrainRecipe.model_validate(values)
    model, tokenizer = build_model(recipe)
    save_model(model, tokenizer, recipe, recipe.output_dir)
    with safe_open(recipe.output_dir / "model.safetensors", "pt") as file:
        assert len(file.keys()) == len(list(model.parameters()))
    again, _ = load_checkpoint(str(recipe.output_dir), dtype=dtype)
    assert len(embeddings_of(again)) == 1
    for name, weights in again.named_parameters():
        assert torch.equal(weights, model.get_parameter(name).to(getattr(torch, dtype)))


@torch.inference_mode()
def logprobs(model, token_ids: list[int]) -> torch.Tensor:
    return torch.log_softmax(model.eval()(input_ids=torch.tensor([token_ids])).logits[0].float(), dim=-1)


def test_what_was_trained_is_saved_loaded_and_merged(trained, tmp_path):
    recipe, model, ids = trained
    base, folder = str(recipe.base), str(recipe.output_dir)
    adapted, tokenizer = load_with_adapters(base, {"refinement": folder})
    words = len(tokenizer)
    merged, _ = load_checkpoint(str(merge(recipe.output_dir, tmp_path / "whole")))
    for loaded in (adapted, load_checkpoint(folder)[0], merged):
        torch.testing.assert_close(logprobs(loaded, ids)[:, :words], logprobs(model, ids)[:, :words], rtol=1e-4, atol=1e-4)
    assert len(embeddings_of(merged)) == 1
    before, after = (embeddings_of(m)[0] for m in (load_base(base)[0], merged))
    known = before.shape[0]
    assert torch.equal(after[:known], before)
    assert not torch.isclose(after[known:words], before.mean(dim=0), atol=1e-4).all(dim=1).any()


def test_token_rows_are_those_of_the_adapter_that_reads(trained):
    recipe, _, ids = trained
    model, tokenizer = load_with_adapters(str(recipe.base), {"refinement": str(recipe.output_dir)})
    llm = HuggingFaceLLM(model, tokenizer, adapters=["refinement"])
    context = llm.context([Segment("", "prompt", token_ids=tuple(ids[1:20]))])
    rest = [Segment("", "answer", token_ids=tuple(ids[20:]))]

    async def read():
        return await asyncio.gather(*(context.score(rest, adapter=adapter) for adapter in ("refinement", None)))

    of_adapter, of_base = asyncio.run(read())
    llm.release()
    places = range(19, len(ids) - 1), ids[20:]
    assert of_adapter == pytest.approx(logprobs(model, ids)[places].tolist(), abs=1e-4)
    with model.disable_adapter():
        assert of_base == pytest.approx(logprobs(model, ids)[places].tolist(), abs=1e-4)


def test_a_kind_of_attention_that_a_family_lacks_is_one_line(tiny_tokenizer, tmp_path):
    family_model("gemma-2", tiny_tokenizer).save_pretrained(tmp_path / "base")
    tiny_tokenizer.save_pretrained(tmp_path / "base")
    recipe = TrainRecipe.model_validate(recipe_values(tmp_path, task="refinement", base=tmp_path / "base"))
    with pytest.raises(CheckpointError, match="base: gemma2 has no attn_implementation: sdpa. Use attn_implementation: eager"):
        build_model(recipe)
