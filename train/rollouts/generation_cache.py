"""What was sampled, scored and compared for the steps that no checkpoint covers yet, so that a resumed run samples nothing twice."""

from pathlib import Path
from typing import Any

KEPT_FOLDER = "rollouts"  # beside the checkpoints


class KeptGenerations:
    """A process's generations, one file each. `generation` numbers what is sampled at once, from 0."""

    def __init__(self, checkpoints: Path, process: int) -> None:
        self._folder, self._process = checkpoints / KEPT_FOLDER, process

    def read(self, generation: int) -> dict[str, Any] | None:
        """What `write` was given, or None. A file that was cut short has another name."""
        import torch

        path = self._path(generation)
        return torch.load(path, weights_only=True) if path.exists() else None

    def write(self, generation: int, values: dict[str, Any]) -> None:
        """Keep tensors, numbers and texts."""
        import torch

        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._path(generation).with_suffix(".partial")
        torch.save(values, partial)
        partial.replace(self._path(generation))

    def drop_before(self, generation: int) -> None:
        """Delete the generations of steps that a checkpoint covers."""
        for path in self._folder.glob(f"*_{self._process}.pt"):
            if int(path.stem.partition("_")[0]) < generation:
                path.unlink()

    def _path(self, generation: int) -> Path:
        return self._folder / f"{generation:06d}_{self._process}.pt"
