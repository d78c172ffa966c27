"""Each strategy, and each way a base holds control tokens: what is trained, in which precision, and that what is saved is that model."""

import asyncio
import json
from copy import deepcopy

import pytest
import torch
from helpers.tiny_llama import saved_llama

from refinery.contract.control_tokens import MANIFEST_FILE, RQ_RAG
from refinery.contract.records import KnowledgeLabel, Passage, Step, Trajectory, write_records
from refinery.contract.segments import encode_text
from refinery.errors import CheckpointError
from refinery.llms.build import ModelConfig, build_llm
from refinery.llms.weights.checkpoint import load_base, load_checkpoint, load_with_adapters
from refinery.tasks import self_knowledge
from refinery.tasks.base import load_task
from refinery.tasks.self_knowledge import KNOW, UNKNOW, knowledge_prompt
from train.families.adapter import invocation_tokens
from train.families.causal import build_trainer
from train.families.model import build_model, save_model
from train.recipe import TrainRecipe
from train.rows.data import encode_rows, training_records

NAMES = ("Dune", "Golden Harbor", "The Iron Raven", "Silent Valley")
TRAJECTORIES = [
    Trajectory(
        question_id=name,
        question=f"Who directed {name}?",
        steps=[
            Step(
                action="rewrite",
                text=f"director of film {name}",
                passages=[Passage(id="1", title=name, text=f"{name} [A_Response] is a film.")],
            ),
            Step(action="answer", text=f"Maria {name}"),
        ],
    )
    for name in NAMES
]
LABELS = [KnowledgeLabel(question_id=str(i), question=f"Who made {name}?", label=("know", "unknow")[i % 2]) for i, name in enumerate(NAMES)]


@pytest.fixture(scope="module")
def recipe(tiny_bases, tmp_path_factory):
    """A recipe of a few steps over the untied tiny base, in a folder of its own."""

    def build(**changes) -> TrainRecipe:
        folder = tmp_path_factory.mktemp("strategy")
        write_records(folder / "refinement.jsonl", TRAJECTORIES)
        write_records(folder / "self_knowledge.jsonl", LABELS)
        values = {
            "task": "refinement",
            "base": str(tiny_bases["untied"]),
            "data": [folder / f"{changes.get('task', 'refinement')}.jsonl"],
            "output_dir": folder / "run",
            "dtype": "float32",
            "gradient_checkpointing": False,
            "lora_dropout": 0.0,
            "learning_rate": 1e-2,
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": 1,
            "max_steps": 3,
        }
        return TrainRecipe.model_validate(values | changes)

    return build


def trained(recipe: TrainRecipe):
    """(model, tokenizer, rows, names of the parameters that moved) after a short training run, saved to the recipe's folder."""
    model, tokenizer = build_model(recipe)
    rows, _ = encode_rows(training_records(recipe), recipe, tokenizer)
    trainer = build_trainer(model, tokenizer, rows, recipe)
    before = {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}
    trainer.train()
    moved = {name for name, parameter in trainer.model.named_parameters() if not torch.equal(parameter, before[name])}
    save_model(trainer.model, tokenizer, recipe, recipe.output_dir)
    return trainer.model, tokenizer, rows, moved


def logits(model, rows) -> list[torch.Tensor]:
    with torch.inference_mode():
        return [model.eval()(input_ids=torch.tensor([row.input_ids])).logits.float() for row in rows]


def assert_close(ours, theirs) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


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


@pytest.fixture(scope="module")
def qlora_run(recipe):
    """A QLoRA run: its recipe, then what `trained` gives."""
    pytest.importorskip("bitsandbytes", reason="needs bitsandbytes (extra gpu)")
    settings = recipe(strategy="qlora")
    return settings, *trained(settings)


def test_qlora_holds_the_base_in_nf4_twice_quantized_and_trains_in_float32(qlora_run):
    from bitsandbytes.nn import Linear4bit

    _, model, _, _, moved = qlora_run
    layers = [layer for layer in model.modules() if isinstance(layer, Linear4bit)]
    assert len(layers) == 14
    assert {(layer.weight.quant_type, layer.weight.compress_statistics) for layer in layers} == {("nf4", True)}
    assert {parameter.dtype for parameter in model.parameters() if parameter.requires_grad} == {torch.float32}
    assert all("lora_" in name or "trainable_tokens_delta" in name for name in moved)
    assert sum("trainable_tokens_delta" in name for name in moved) == 2


def test_a_qlora_adapter_is_merged_into_the_unquantized_base(qlora_run):
    settings, model, _, _, _ = qlora_run
    merged, tokenizer = load_checkpoint(str(settings.output_dir))
    assert not getattr(merged, "is_loaded_in_4bit", False)
    row = tokenizer.convert_tokens_to_ids("[A_Response]")
    delta = model.get_output_embeddings().token_adapter.trainable_tokens_delta["default"]
    torch.testing.assert_close(merged.get_output_embeddings().weight[row], delta[0])


def test_a_layer_that_the_cpu_kernel_cannot_evaluate_is_refused(recipe, tiny_tokenizer, tmp_path):
    pytest.importorskip("bitsandbytes", reason="needs bitsandbytes (extra gpu)")
    odd = saved_llama(tmp_path / "odd", tiny_tokenizer, intermediate_size=80, num_hidden_layers=1)
    with pytest.raises(CheckpointError, match=r"layer model.layers.0.mlp.gate_proj has 80 outputs.* Use strategy: lora, or a GPU"):
        build_model(recipe(strategy="qlora", base=str(odd)))


def test_dora_trains_magnitudes_and_merges_exactly(recipe):
    settings = recipe(strategy="dora")
    model, _, rows, moved = trained(settings)
    assert any("lora_magnitude_vector" in name for name in moved)
    merged, _ = load_checkpoint(str(settings.output_dir))
    assert_close(logits(merged, rows), logits(model, rows))


@pytest.fixture(scope="module")
def alora_run(recipe):
    """An aLoRA run of a sub-model: its recipe, then what `trained` gives."""
    settings = recipe(strategy="alora", task="self_knowledge")
    return settings, *trained(settings)


def test_an_activated_adapter_trains_nothing_but_itself(alora_run):
    _, model, tokenizer, _, moved = alora_run
    assert moved
    assert all("lora_" in name for name in moved)
    assert model.peft_config["default"].alora_invocation_tokens == invocation_tokens(self_knowledge.TASK, tokenizer)


@pytest.mark.parametrize("task", ["self_knowledge", "relevance", "selection"])
def test_every_prompt_of_a_judge_ends_in_its_invocation(task, tiny_tokenizer):
    ids = invocation_tokens(load_task(task), tiny_tokenizer)
    assert tiny_tokenizer.decode(ids).strip() == "Answer:"


def test_the_bases_keys_and_values_serve_an_activated_adapter_exactly(alora_run):
    """max |difference of logits| = 0 between the base's prefix and the adapter's own: sub-models can share one cache."""
    _, model, tokenizer, _, _ = alora_run
    ids = torch.tensor([[tokenizer.bos_token_id, *encode_text(knowledge_prompt("Who made Dune?"), tokenizer)]])
    invoked = len(invocation_tokens(self_knowledge.TASK, tokenizer))
    model = model.eval()
    with torch.inference_mode():
        with model.disable_adapter():
            bare = model(input_ids=ids).logits
            of_base = model(input_ids=ids[:, :-invoked], use_cache=True).past_key_values
        of_adapter = model(input_ids=ids[:, :-invoked], use_cache=True).past_key_values
        on_base = model(input_ids=ids[:, -invoked:], past_key_values=of_base).logits
        without_zero3_init = model(input_ids=ids[:, -invoked:], past_key_values=of_adapter).logits
        whole = model(input_ids=ids).logits
    assert (on_base - without_zero3_init).abs().max() == 0
    assert torch.equal(whole[:, :-invoked], bare[:, :-invoked])
    assert not torch.allclose(whole[:, -1], bare[:, -1], atol=1e-3)
    torch.testing.assert_close(on_base, whole[:, -invoked:], rtol=1e-4, atol=1e-4)


def test_an_activated_adapter_is_loaded_unmerged(alora_run):
    settings, model, _, rows, _ = alora_run
    loaded, _ = load_checkpoint(str(settings.output_dir))
    assert_close(logits(loaded, rows), logits(model, rows))


def test_the_engine_reads_an_activated_adapters_label(alora_run):
    settings, model, tokenizer, _, _ = alora_run
    prompt = knowledge_prompt("Who made Dune?")
    llm = build_llm(ModelConfig(base=str(settings.output_dir), device="cpu"))
    shares = asyncio.run(llm.context(prompt).label_probs((KNOW, UNKNOW)))
    ids = torch.tensor([[tokenizer.bos_token_id, *encode_text(prompt, tokenizer)]])
    with torch.inference_mode():
        last = model.eval()(input_ids=ids).logits[0, -1]
    read = torch.softmax(last[[encode_text(label, tokenizer)[0] for label in (KNOW, UNKNOW)]], dim=0)
    assert list(shares.values()) == pytest.approx(read.tolist(), abs=1e-4)


@pytest.mark.parametrize("base", ["tied", "untied"])
def test_a_bfloat16_full_run_trains_in_float32_and_saves_bfloat16(recipe, tiny_bases, base):
    settings = recipe(strategy="full", dtype="bfloat16", base=str(tiny_bases[base]))
    model, _, _, _ = trained(settings)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    loaded = dict(load_checkpoint(str(settings.output_dir))[0].named_parameters())
    assert {parameter.dtype for parameter in loaded.values()} == {torch.bfloat16}
    assert all(torch.equal(loaded[name], parameter.to(torch.bfloat16)) for name, parameter in model.named_parameters())


def test_a_bfloat16_base_is_trained_by_float32_adapters(recipe):
    model, _ = build_model(recipe(dtype="bfloat16"))
    assert {parameter.dtype for parameter in model.parameters() if parameter.requires_grad} == {torch.float32}
    assert {parameter.dtype for parameter in model.parameters() if not parameter.requires_grad} == {torch.bfloat16}


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
