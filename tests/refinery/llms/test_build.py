import pytest
import torch

from refinery.errors import CheckpointError
from refinery.llms.build import ModelConfig, build_llm
from refinery.llms.engine.tree_forward import tokens_of_a_pass
from refinery.llms.weights.device import own_device


@pytest.mark.parametrize("device", ["cuda", "mps", "xpu"])
def test_an_accelerator_of_any_kind_takes_larger_passes_than_a_processor(device):
    assert tokens_of_a_pass(torch.device(device)) > tokens_of_a_pass(torch.device("cpu"))


@pytest.mark.parametrize(("accelerator", "number", "device"), [(None, 1, "cpu"), ("mps", 1, "mps:0"), ("xpu", 2, "xpu:1")])
def test_a_process_takes_its_own_accelerator(monkeypatch, accelerator, number, device):
    found = accelerator and torch.device(accelerator)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: found)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: number)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert own_device() == device


def test_an_adapter_of_a_mixtures_experts_is_not_mixed_with_the_base(tmp_path, tiny_tokenizer):
    from helpers.decoder_families import family_model
    from peft import LoraConfig, get_peft_model

    model = family_model("mixtral", tiny_tokenizer)
    model.save_pretrained(tmp_path / "base")
    tiny_tokenizer.save_pretrained(tmp_path / "base")
    get_peft_model(model, LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM")).save_pretrained(tmp_path / "adapter")
    with pytest.raises(CheckpointError, match="adapter: trains the experts of a mixture, which PEFT does not mix"):
        build_llm(ModelConfig(base=str(tmp_path / "base"), adapters={"relevance": str(tmp_path / "adapter")}))
