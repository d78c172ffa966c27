"""Mistakes in the names and folders of models."""

import json
from pathlib import Path
from typing import Any

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


def damaged_base(name: str, *says: str, files: dict[str, Any] | None = None, **changed: str | None) -> BadInput:
    """A copy of the base in which these files (`__` is a dot) have another text, or are missing."""
    return BadInput(name, "infer infer.yaml llm.base=model", says, files or {}, prepare=copy_of_base(**changed))


NOT_FETCHED = ("nobody/absent: there is no such folder, and HF_HUB_OFFLINE is set, so it cannot be fetched",)
NO_HUB_NAME = "there is no such folder, and it is not a hub name (owner/name)"
MODELS = [
    BadInput("no such model folder", "infer infer.yaml llm.base=./absent", (f"./absent: {NO_HUB_NAME}",)),
    BadInput("a hub name that cannot be fetched", "infer infer.yaml llm.base=nobody/absent", NOT_FETCHED),
    BadInput("a base to train that cannot be fetched", "train train.yaml base=nobody/absent", NOT_FETCHED),
    BadInput("a name that is not a model's", "infer infer.yaml llm.base=a/b/c", (f"a/b/c: {NO_HUB_NAME}",)),
    damaged_base("a folder without a config", "model: has no config.json", config__json=None),
    damaged_base("a config that is not JSON", "model: its config.json is not valid JSON", "Copy or download", config__json="{"),
    damaged_base(
        "a folder without a tokenizer", "model: has no tokenizer", "tokenizer.json", tokenizer__json=None, tokenizer_config__json=None
    ),
    damaged_base(
        "weights as .bin only",
        "model: has no weights as safetensors",
        "refinery convert-weights model",
        files={"model/pytorch_model.bin": b"x"},
        model__safetensors=None,
    ),
    damaged_base("weights that are cut off", "model: model.safetensors is not as it was saved", "Copy or download", model__safetensors="x"),
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
