"""A trainer's running sums, saved with each checkpoint: losses since the last log and since the start, tokens seen, TRL's metrics.

transformers (5.23) resets them when a run is resumed, so the figures of a resumed run would cover only its last part.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback

if TYPE_CHECKING:
    from transformers import Trainer as MixedIntoTrainer
else:
    MixedIntoTrainer = object

_log = logging.getLogger(__name__)

# Of transformers' Trainer, of TRL's, and of those in train/trainers; each trainer has some of them.
_OF_LIBRARIES = ("_tr_loss", "_total_loss_scalar", "_globalstep_last_logged", "_metrics", "_total_train_tokens")
_NAMES = (*_OF_LIBRARIES, "_logged", "_summed", "_counted", "_sampled", "_computed", "_search_cost")


class KeepsSums(MixedIntoTrainer):
    """Mixin of a Trainer: writes each process's sums beside its random state, and gives the loss of all steps, resumed or not."""

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        sums = {name: getattr(self, name) for name in _NAMES if hasattr(self, name)}
        if "_metrics" in sums:
            sums["_metrics"] = {mode: dict(values) for mode, values in sums["_metrics"].items()}
        torch.save(sums, _file(output_dir, self.args.process_index))

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as the trainer does, but correct its `train_loss`, which covers only the steps since the run was resumed."""
        if "train_loss" in logs:
            logs["train_loss"] = self._total_loss_scalar / max(self.state.global_step, 1)
        super().log(logs, start_time)


class RestoreSums(TrainerCallback):
    """Restores a checkpoint's sums after the trainer has reset its own."""

    def __init__(self, trainer: Any, checkpoint: Path) -> None:
        self._trainer, self._checkpoint = trainer, checkpoint

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Restore this process's sums, and update the path of the best checkpoint so far, because the run may have been moved."""
        if state.best_model_checkpoint:
            state.best_model_checkpoint = str(Path(args.output_dir) / Path(state.best_model_checkpoint).name)
        file = _file(self._checkpoint, args.process_index)
        if not file.exists():
            _log.warning("%s: is not there; losses and token counts will be of the steps from here on.", file)
            return
        for name, value in torch.load(file, map_location=args.device, weights_only=True).items():
            if name == "_metrics":
                for mode, values in value.items():
                    self._trainer._metrics[mode].update(values)
            elif isinstance(value, torch.Tensor):
                getattr(self._trainer, name).copy_(value)
            else:
                setattr(self._trainer, name, value)


def _file(folder: str | Path, process_rank: int) -> Path:
    return Path(folder) / f"sums_{process_rank}.pth"
