"""Fused layers: the same loss and gradients as the plain ones, in each dtype, and no trace of them afterwards."""

import pytest
import torch
from helpers.family_rows import recipe_values
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
from transformers.models.gemma.modeling_gemma import GemmaConfig
from transformers.models.llama import modeling_llama
from transformers.models.qwen3.modeling_qwen3 import Qwen3Config

from train.families.fused_layers import fused_layers
from train.recipe import TrainRecipe
from train.run import run

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}
CONFIGS = {
    "llama": modeling_llama.LlamaConfig(**SIZES, num_key_value_heads=2),
    "qwen3": Qwen3Config(**SIZES, num_key_value_heads=2, attention_bias=True),
    "gemma": GemmaConfig(**SIZES, num_key_value_heads=2),
}
IDS = torch.arange(24).view(2, 12)


def adapted(kind: str, dtype: torch.dtype, *, dropout: float = 0.0, seed: int = 0):
    """A random model in the dtype with an adapter in float32 whose B is not zero, in training."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(CONFIGS[kind]).to(dtype)
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, lora_dropout=dropout, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter.data, 0.5, 1.5)
        if "lora_" in name:
            parameter.data = torch.nn.init.normal_(parameter.data.float(), std=0.2)
    return model.train()


def loss_and_gradients(model) -> tuple[float, torch.Tensor]:
    """The loss, and the gradients of all trained weights as one vector."""
    model.zero_grad()
    torch.manual_seed(1)  # of dropout
    half = model.get_input_embeddings().weight.dtype == torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        loss = model(input_ids=IDS, labels=IDS).loss
    loss.backward()
    return float(loss.detach()), torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


def distance(gradients: torch.Tensor, expected: torch.Tensor) -> float:
    return float((gradients - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("llama", {"norms": 5, "adapters": 14, "mlps": 2, "rotary embeddings": 1}),
        ("qwen3", {"norms": 9, "adapters": 14, "mlps": 2, "rotary embeddings": 1}),
        ("gemma", {"adapters": 14, "rotary embeddings": 1}),  # it scales by 1 + weight, and its MLP has a GELU
    ],
)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_loss_and_its_gradients_are_those_of_plain_layers(kind, found, dropout):
    model = adapted(kind, torch.float32, dropout=dropout)
    expected, gradients = loss_and_gradients(model)
    with fused_layers(model, compiler="eager") as counts:
        loss, fused_gradients = loss_and_gradients(model)
    assert counts == found
    assert loss == pytest.approx(expected, abs=1e-6)
    assert distance(fused_gradients, gradients) < 1e-6


def test_in_bfloat16_they_round_no_more_than_plain_layers_do():
    errors = []
    for seed in range(6):
        (_, exact), model = loss_and_gradients(adapted("llama", torch.float32, seed=seed)), adapted("llama", torch.bfloat16, seed=seed)
        expected, gradients = loss_and_gradients(model)
        with fused_layers(model):
            loss, fused_gradients = loss_and_gradients(model)
        assert loss == pytest.approx(expected, abs=1e-3)
        errors.append((distance(fused_gradients, exact), distance(gradients, exact)))
    fused, plain = map(sum, zip(*errors, strict=True))
    assert fused < 1.1 * plain


def test_they_are_computed_again_where_activations_are_not_kept():
    model = adapted("llama", torch.float32, dropout=0.3)
    expected, gradients = loss_and_gradients(model)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    with fused_layers(model, compiler="eager"):
        loss, fused_gradients = loss_and_gradients(model)
    assert loss == pytest.approx(expected, abs=1e-6)
    assert distance(fused_gradients, gradients) < 1e-6


def test_without_its_adapter_a_model_is_its_base():
    model = adapted("llama", torch.float32).eval()
    with torch.no_grad(), model.disable_adapter():
        expected = model(input_ids=IDS).logits
        with fused_layers(model):
            assert torch.allclose(model(input_ids=IDS).logits, expected, atol=1e-5)


def test_nothing_of_them_is_saved_or_stays(tmp_path):
    model, rotary = adapted("llama", torch.float32), modeling_llama.apply_rotary_pos_emb
    model.save_pretrained(tmp_path / "plain")
    with fused_layers(model, compiler="eager"):
        assert modeling_llama.apply_rotary_pos_emb is not rotary
        model.save_pretrained(tmp_path / "fused")
    assert modeling_llama.apply_rotary_pos_emb is rotary
    assert not any("forward" in vars(module) for module in model.modules())
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("plain", "fused")]
    assert files[0] == files[1]


def test_a_run_says_what_it_fused_and_learns_the_same(tiny_bases, tmp_path):
    losses = []
    for fused in (False, True):
        values = recipe_values(tmp_path, task="self_knowledge", base=tiny_bases["untied"], output_dir=str(tmp_path / str(fused)))
        metrics = run(TrainRecipe.model_validate(values | {"fused_layers": fused, "max_steps": 2}), resume=False)
        losses.append(metrics["train_loss"])
        assert metrics["fused_layers"] == ({"norms": 5, "adapters": 14} if fused else {})
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    files = [sorted(path.name for path in (tmp_path / str(fused)).iterdir()) for fused in (False, True)]
    assert files[0] == files[1]
