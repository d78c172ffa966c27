"""Mistakes in the names and folders of models."""

import json
from pathlib import Path

import numpy as np
from helpers.bad_inputs.world import BadInput, copy_of_base

ADAPTER = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "someone/other", "r": 4, "target_modules": ["q_proj"]}


def write_adapter(folder: Path) -> None:
    """An adapter of a model with other shapes, in `adapter/`."""
    from safetensors.numpy import save_file

    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(ADAPTER))
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    weights = {f"{module}.lora_A.weight": np.ones((4, 999), np.float32), f"{module}.lora_B.weight": np.ones((999, 4), np.float32)}
    save_file(weights, folder / "adapter" / "adapter_model.safetensors")


MODELS = [
    BadInput(
        "no such model folder",
        "infer infer.yaml llm.base=./absent",
        ("./absent: there is no such folder, and it is not a hub name (owner/name)",),
    ),
    BadInput(
        "a hub name that cannot be fetched",
        "infer infer.yaml llm.base=nobody/absent",
        ("nobody/absent: there is no such folder, and HF_HUB_OFFLINE is set, so it cannot be fetched",),
    ),
    BadInput(
        "a base to train that cannot be fetched",
        "train train.yaml base=nobody/absent",
        ("nobody/absent: there is no such folder, and HF_HUB_OFFLINE is set, so it cannot be fetched",),
    ),
    BadInput(
        "a name that is not a model's",
        "infer infer.yaml llm.base=a/b/c",
        ("a/b/c: there is no such folder, and it is not a hub name (owner/name)",),
    ),
    BadInput(
        "a folder without a config",
        "infer infer.yaml llm.base=model",
        ("model: has no config.json",),
        prepare=copy_of_base(config__json=None),
    ),
    BadInput(
        "a config that is not JSON",
        "infer infer.yaml llm.base=model",
        ("model: its config.json is not valid JSON", "Copy or download"),
        prepare=copy_of_base(config__json="{"),
    ),
    BadInput(
        "a folder without a tokenizer",
        "infer infer.yaml llm.base=model",
        ("model: has no tokenizer", "tokenizer.json"),
        prepare=copy_of_base(tokenizer__json=None, tokenizer_config__json=None),
    ),
    BadInput(
        "weights as .bin only",
        "infer infer.yaml llm.base=model",
        ("model: has no weights as safetensors", "save_pretrained"),
        {"model/pytorch_model.bin": b"x"},
        prepare=copy_of_base(model__safetensors=None),
    ),
    BadInput(
        "weights that are cut off",
        "infer infer.yaml llm.base=model",
        ("model: its weights are damaged", "Copy or download"),
        prepare=copy_of_base(model__safetensors="x"),
    ),
    BadInput(
        "an adapter of another base",
        "infer infer.yaml llm.adapters.answer=adapter",
        ("adapter: does not fit base (", "It was trained on someone/other"),
        prepare=write_adapter,
    ),
    BadInput(
        "an adapter that is a whole model",
        "infer infer.yaml llm.adapters.answer=base",
        ("base: no adapter_config.json, so it is not an adapter",),
    ),
]
