"""TRL's trainer with the output head on supervised positions only, each token's loss weighted by its kind and reported by kind.

TRL projects the other positions too unless its GPU kernel runs. In a row of evidence and prompt few positions are supervised, and the head
is a large part of a small model. Hooks hand TRL's own loss what it sums, so that its scaling over accumulated batches and processes,
its metrics and its mixture-of-experts loss stay its own.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
from trl.trainer.sft_trainer import SFTTrainer

from refinery.contract.segments import IGNORED_LABEL, SegmentKind
from train.rows.packing import KINDS
from train.trainers.generative_eval import GenerativeEvalMixin

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class SupervisedHeadTrainer(GenerativeEvalMixin, SFTTrainer):
    """Trains batches of `train.rows.packing.PackingCollator`: the fused head sees the hidden states whose next token is supervised.

    The loss is the mean over the supervised tokens of all processes and accumulated batches, in training weighted where `loss_weights`
    (kind to weight, 1 where not named) says so. Logs hold the unweighted mean of each kind as `loss_<kind>` since the last log, and the
    result's metrics as `train_loss_<kind>` since training started.
    """

    def __init__(self, *, loss_weights: Mapping[SegmentKind, float], **arguments: Any) -> None:
        super().__init__(**arguments)
        weights = torch.tensor([loss_weights.get(kind, 1.0) for kind in KINDS])
        # Only ratios matter; TRL treats a sum of weights below 1 as an empty batch.
        self._weights = weights / weights.min() if loss_weights else None
        self._keep: torch.Tensor | None = None  # (batch, seq - 1), while a loss is computed
        self._kinds: torch.Tensor | None = None  # (supervised,)
        empty = torch.zeros(len(KINDS), 2, dtype=torch.float64, device=self.accelerator.device)  # sum of losses and count, by kind
        self._logged, self._summed = empty, empty.clone()
        # PEFT calls its base model's forward without the hooks of the base model, but with the decoder's hooks and its own.
        model = cast("PreTrainedModel", self.accelerator.unwrap_model(self.model))
        model.get_decoder().register_forward_hook(self._select)
        model.register_forward_hook(self._weigh)

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        """The loss of SFTTrainer, to which the other positions would add nothing."""
        targets = inputs["labels"][:, 1:]
        self._keep = targets != IGNORED_LABEL
        self._kinds = inputs["kinds"][:, 1:][self._keep]
        kept = {name: value for name, value in inputs.items() if name not in ("labels", "kinds")}
        try:
            supervised = kept | {"shift_labels": targets[self._keep][None]}
            return super().compute_loss(model, supervised, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch)
        finally:
            self._keep = self._kinds = None

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's log with the loss of each kind of token, over all processes."""
        if cast("PreTrainedModel", self.model).training:
            logs |= self._by_kind(self._logged, "loss")
            if "train_runtime" in logs:
                logs |= self._by_kind(self._summed, "train_loss")
            self._logged.zero_()
        super().log(logs, start_time)

    def _select(self, module: Any, arguments: Any, output: Any) -> Any:
        if self._keep is not None:
            output.last_hidden_state = output.last_hidden_state[:, :-1][self._keep][None]  # (1, supervised, hidden)
        return output

    def _weigh(self, module: Any, arguments: Any, output: Any) -> Any:
        if self._kinds is not None and module.training:
            losses = -output.log_probs.detach()[0]  # (supervised,)
            counted = torch.stack([losses, torch.ones_like(losses)], dim=1).double()
            self._logged.index_add_(0, self._kinds, counted)
            self._summed.index_add_(0, self._kinds, counted)
            if self._weights is not None:
                output.log_probs = output.log_probs * self._weights.to(losses.device)[self._kinds]
        return output

    def _by_kind(self, sums: torch.Tensor, name: str) -> dict[str, float]:
        """Collective: the mean over the tokens of all processes, of each kind that has any."""
        total = self.accelerator.reduce(sums.to(self.accelerator.device), reduction="sum")
        return {f"{name}_{kind}": float(loss / count) for kind, (loss, count) in zip(KINDS, total, strict=True) if count}

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Any]], device: torch.device) -> Any:
        """What the loss of a step is divided by: the number of supervised tokens, or the sum of their weights."""
        if self._weights is None:
            return super()._get_num_items_in_batch(batch_samples, device)
        sums = torch.stack([_sum_of_weights(batch, self._weights) for batch in batch_samples])
        return cast(torch.Tensor, self.accelerator.gather(sums.sum().to(device))).sum()


def _sum_of_weights(batch: dict[str, Any], weights: torch.Tensor) -> torch.Tensor:
    kept = batch["labels"][:, 1:] != IGNORED_LABEL
    return weights.to(kept.device)[batch["kinds"][:, 1:][kept]].sum()
