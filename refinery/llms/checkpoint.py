"""Load a checkpoint for inference: a whole model, an adapter on its base, or several adapters on one base.

An adapter trained here carries its control-token manifest and the tokenizer it was trained with, and is loaded on the unextended base
by one call: the base is resized first, which plain PEFT leaves to the caller (its own message is an IndexError). Only safetensors are
read and no code from a repository is run.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refinery.errors import CheckpointError

DTYPES = ("float32", "bfloat16", "float16", "auto")


def load_checkpoint(path: str, *, dtype: str = "auto") -> tuple[Any, Any]:
    """(model, tokenizer) of a whole checkpoint, or of an adapter merged into its base. Raises CheckpointError when they disagree."""
    adapter = read_adapter_config(path)
    if adapter is None:
        return load_base(path, dtype=dtype)
    model, tokenizer = load_with_adapters(adapter["base_model_name_or_path"], {"default": path}, dtype=dtype)
    return model.merge_and_unload(), tokenizer


def load_base(path: str, *, dtype: str = "auto") -> tuple[Any, Any]:
    """(model, tokenizer) of a whole causal checkpoint."""
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(path)
    try:
        model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, use_safetensors=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: no causal model can be loaded ({_first_line(error)}).") from None
    _check_vocabulary(path, model, tokenizer)
    return model, tokenizer


def load_with_adapters(base: str, adapters: Mapping[str, str], *, dtype: str = "auto") -> tuple[Any, Any]:
    """(PEFT model, tokenizer) with every adapter loaded under its name, ready for mixed batches."""
    from peft import PeftModel

    model, tokenizer = load_base(base, dtype=dtype)
    for name, path in adapters.items():
        config = read_adapter_config(path)
        if config is None:
            raise CheckpointError(f"{path}: no adapter_config.json, so it is not an adapter. Name the output_dir of a LoRA run.")
        if (Path(path) / "tokenizer_config.json").exists():
            tokenizer = load_tokenizer(path)
            extend_vocabulary(model, len(tokenizer))
        if isinstance(model, PeftModel):
            model.load_adapter(path, adapter_name=name)
        else:
            model = PeftModel.from_pretrained(model, path, adapter_name=name)
    return model, tokenizer


def load_tokenizer(path: str) -> Any:
    """The tokenizer of a checkpoint, checked against the control-token manifest saved beside it."""
    from transformers import AutoTokenizer

    from refinery.control_tokens import check_manifest

    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: no tokenizer can be loaded ({_first_line(error)}).") from None
    check_manifest(path, tokenizer)
    return tokenizer


def extend_vocabulary(model: Any, tokens: int) -> None:
    """Resize the embeddings to hold `tokens` rows, rounded up to a multiple of 64; never shrinks."""
    if tokens > model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(-(-tokens // 64) * 64, mean_resizing=False)


def read_adapter_config(path: str) -> dict[str, Any] | None:
    """The adapter's configuration, or None where `path` holds a whole model."""
    file = Path(path) / "adapter_config.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _check_vocabulary(path: str, model: Any, tokenizer: Any) -> None:
    rows = model.get_input_embeddings().weight.shape[0]
    if rows < len(tokenizer):
        raise CheckpointError(
            f"{path}: the tokenizer has {len(tokenizer):,} tokens, the model only {rows:,} embeddings. "
            "They come from different checkpoints; use the tokenizer that was saved with the model."
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
