"""Checkpoints: the newest that `--resume` can continue from, and the whole weights of a model that is split over processes."""

import logging
import zipfile
from pathlib import Path
from typing import Any

from train.recipe import TrainRecipe

_log = logging.getLogger(__name__)


def last_checkpoint(recipe: TrainRecipe) -> Path | None:
    """The newest whole checkpoint, or None where there is none. Logs a line for each newer one that is damaged."""
    folders = sorted((recipe.output_dir / "checkpoints").glob("checkpoint-*"), key=_step, reverse=True)
    damages: list[str] = []
    for folder in folders:
        damage = _damage(folder)
        if damage is None:
            for line in damages:
                _log.warning("%s. Going on from step %d instead.", line, _step(folder))
            return folder
        damages.append(f"{folder}: cannot be resumed from ({damage})")
    for line in damages:
        _log.warning("%s, and there is none before it. Training begins anew.", line)
    return None


def _step(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def _damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, found by reading it; None for a whole one."""
    from safetensors import SafetensorError, safe_open

    state = folder / "trainer_state.json"
    # The trainer writes it last, so that without it or its end the save was cut short.
    if not state.exists() or not state.read_bytes().endswith(b"}\n"):
        return "its save was cut short"
    if not any(folder.glob("optimizer*")) and not any(folder.glob("global_step*")):  # DeepSpeed writes it to a separate folder
        return "the optimizer's state is missing"
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        try:
            if file.suffix == ".safetensors":
                with safe_open(file, framework="pt"):
                    pass
            elif file.suffix in (".pt", ".pth", ".bin"):  # torch writes zip archives, whose parts have checksums
                with zipfile.ZipFile(file) as archive:
                    if archive.testzip() is not None:
                        return f"{file.name} is damaged"
        except (SafetensorError, zipfile.BadZipFile, OSError):
            return f"{file.name} is damaged"
    return None


def whole_weights(trainer: Any) -> dict[str, Any] | None:
    """Weights by name, in host memory: all of a model, or what is trained of an adapter; None where every process holds the model whole.

    Every process must call it. Gathers one parameter at a time, so no device ever holds more than its share and one whole parameter.
    """
    from torch.distributed.tensor import DTensor

    model = trainer.accelerator.unwrap_model(trainer.model)
    split = [parameter for parameter in model.parameters() if hasattr(parameter, "ds_id") or isinstance(parameter, DTensor)]
    if not split:
        return None
    wanted = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    # FSDP's own recomputation wraps layers, and their names with them.
    return {name.replace("_checkpoint_wrapped_module.", ""): _whole(parameter) for name, parameter in wanted}


def _whole(parameter: Any) -> Any:
    from torch.distributed.tensor import DTensor

    if isinstance(parameter, DTensor):
        return parameter.full_tensor().detach().cpu()
    if not hasattr(parameter, "ds_id"):
        return parameter.detach().cpu()
    import deepspeed

    with deepspeed.zero.GatheredParameters([parameter]):
        return parameter.detach().cpu().clone()
