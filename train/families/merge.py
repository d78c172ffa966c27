"""`refinery merge RUN --output DIR`: an adapter and its base as one checkpoint, for servers that do not support adapters with token rows.

Merged in float32 on the unquantised base, also for QLoRA: rounding a 4-bit base again would lose what was trained (peft #2321).
"""

import json
import shutil
from pathlib import Path
from typing import Any

from refinery.contract.control_tokens import MANIFEST_FILE, read_manifest, seal_weights
from refinery.errors import CheckpointError, RunDirError
from refinery.llms.weights.checkpoint import load_checkpoint, read_adapter_config


def merge(run: Path, output: Path, *, dtype: str = "auto", resume: bool = False) -> Path:
    """Write the merged model of an adapter run with its tokenizer and manifest; `auto` saves the dtype that the base is stored in.

    The folder is there only once it is whole. Raises CheckpointError if the run has no adapter or it cannot be merged, and RunDirError
    when `output` exists, unless `resume` keeps it.
    """
    if resume and output.exists():
        return output
    adapter = read_adapter_config(str(run))
    if adapter is None:
        raise CheckpointError(f"{run}: holds no adapter, so there is nothing to merge. A full run's folder is a whole checkpoint already.")
    if adapter.get("alora_invocation_tokens"):
        raise CheckpointError(
            f"{run}: an aLoRA adapter acts from its invocation on only, so no weight can hold it. Train with strategy: lora."
        )
    if output.exists():
        raise RunDirError(f"{output}: exists already. Name a new folder with --output.")
    model, tokenizer = load_checkpoint(str(run), dtype="float32")
    model = model.to(_torch_dtype(dtype, adapter["base_model_name_or_path"]))
    model.config.use_cache = True
    partial = output.with_name(f"{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    manifest = read_manifest(run)
    manifest.pop("base_rows", None)
    (partial / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    seal_weights(partial)
    return partial.rename(output)


def _torch_dtype(name: str, base: str) -> Any:
    import torch

    from refinery.llms.weights.shapes import config_of

    return (config_of(base).dtype or torch.float32) if name == "auto" else getattr(torch, name)
