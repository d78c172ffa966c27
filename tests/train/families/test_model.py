"""The model before training: its control tokens, what of it is trained, and how a checkpoint is saved and loaded."""

import json

import pytest
import torch
from safetensors.torch import load_file

from refinery.contract.control_tokens import MANIFEST_FILE, RQ_RAG
from refinery.contract.segments import encode_text
from refinery.errors import CheckpointError
from refinery.llms.weights.checkpoint import load_base, load_checkpoint, load_with_adapters
from train.families.model import build_model, save_model
from train.recipe import TrainRecipe

both_bases = pytest.mark.parametrize("base", ["tied", "untied"])


@pytest.fixture
def recipe(tiny_bases, tmp_path):
    """A training recipe over one of the tiny bases."""

    def build(base: str, **values) -> TrainRecipe:
        fixed = {"task": "refinement", "data": ["x"], "output_dir": tmp_path / "run", "learning_rate": 1e-2, "dtype": "float32"}
        return TrainRecipe.model_validate(fixed | {"base": str(tiny_bases[base])} | values)

    return build


def embeddings(model) -> list[torch.Tensor]:
    return [model.get_input_embeddings().weight, model.get_output_embeddings().weight]


def saved(recipe: TrainRecipe) -> str:
    model, tokenizer = build_model(recipe)
    save_model(model, tokenizer, recipe, recipe.output_dir)
    return str(recipe.output_dir)


@both_bases
def test_a_control_token_starts_as_the_mean_of_its_description(recipe, base):
    model, tokenizer = build_model(recipe(base, strategy="full"))
    for weight in embeddings(model):
        for token in RQ_RAG:
            described = weight[encode_text(token.init_text, tokenizer)].mean(dim=0)
            assert torch.equal(weight[tokenizer.convert_tokens_to_ids(token.token)], described)


@both_bases
def test_adding_control_tokens_leaves_the_bases_rows_alone(recipe, base):
    original, tokenizer = load_base(recipe(base).base)
    model, extended = build_model(recipe(base, strategy="full"))
    assert len(extended) == len(tokenizer) + len(RQ_RAG)
    for before, after in zip(embeddings(original), embeddings(model), strict=True):
        assert torch.equal(after[: len(before)], before)
        assert len(after) % 64 == 0


def test_a_sub_model_keeps_the_bases_vocabulary(recipe):
    settings = recipe("tied", task="relevance")
    model, tokenizer = build_model(settings)
    assert (len(tokenizer), model.get_input_embeddings().weight.shape[0]) == (1856, 1856)


@both_bases
def test_lora_trains_the_adapter_and_the_new_rows_only(recipe, base):
    model, _ = build_model(recipe(base))
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    rows = {name for name in trained if "lora_" not in name}
    assert all("trainable_tokens_delta" in name for name in rows)
    assert len(rows) == (1 if base == "tied" else 2)
    assert {tuple(model.get_parameter(name).shape) for name in rows} == {(8, 32)}


@both_bases
def test_a_saved_adapter_holds_no_whole_embedding(recipe, base):
    folder = saved(recipe(base))
    tensors = load_file(f"{folder}/adapter_model.safetensors")
    assert max(tensor.shape[0] for tensor in tensors.values()) <= 64
    assert not [name for name in tensors if name.endswith(("embed_tokens.weight", "lm_head.weight"))]


@both_bases
def test_an_untrained_adapter_is_the_base_with_its_control_tokens(recipe, base):
    loaded, _ = load_checkpoint(saved(recipe(base)))
    extended, _ = build_model(recipe(base, strategy="full"))
    for one, other in zip(embeddings(loaded), embeddings(extended), strict=True):
        assert torch.equal(one, other)


def test_a_checkpoint_ships_its_manifest(recipe):
    folder = recipe("tied").output_dir
    saved(recipe("tied"))
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    assert [row["token"] for row in manifest["control_tokens"]] == [token.token for token in RQ_RAG]
    assert [row["id"] for row in manifest["control_tokens"]] == list(range(1856, 1864))


@pytest.mark.parametrize("strategy", ["lora", "full"])
def test_a_checkpoint_whose_manifest_disagrees_is_refused(recipe, strategy):
    folder = saved(recipe("tied", strategy=strategy))
    path = recipe("tied").output_dir / MANIFEST_FILE
    path.write_text(path.read_text().replace('"id": 1860', '"id": 1861'))
    with pytest.raises(CheckpointError, match=r"'\[R_Evidences\]' was trained as id 1,861, but the tokenizer gives 1860"):
        load_checkpoint(folder)


def test_a_model_smaller_than_its_tokenizer_is_refused(recipe, control_tokenizer):
    folder = saved(recipe("tied", task="relevance", strategy="full"))
    control_tokenizer.save_pretrained(folder)
    with pytest.raises(CheckpointError, match="the tokenizer has 1,864 tokens, the model only 1,856 embeddings"):
        load_checkpoint(folder)


def test_a_whole_model_is_no_adapter(recipe, tiny_bases):
    with pytest.raises(CheckpointError, match=r"no adapter_config\.json, so it is not an adapter"):
        load_with_adapters(str(tiny_bases["tied"]), {"relevance": str(tiny_bases["tied"])})


def test_a_base_that_does_not_exist_is_one_line(recipe, tmp_path):
    with pytest.raises(CheckpointError) as caught:
        build_model(recipe("tied").model_copy(update={"base": str(tmp_path / "absent")}))
    assert len(str(caught.value).splitlines()) == 1


def test_three_sub_models_share_one_base(recipe, tmp_path):
    roles = ("self_knowledge", "relevance", "decomposition")
    folders = {role: saved(recipe("untied", task=role, output_dir=tmp_path / role)) for role in roles}
    model, tokenizer = load_with_adapters(recipe("untied").base, folders)
    assert set(model.peft_config) == set(roles)
    assert len(tokenizer) == 1856
