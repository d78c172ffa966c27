"""The checkpoints of a run that `--resume` can continue from: the newest one whose files can all be read."""

import logging
import zipfile
from pathlib import Path

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
