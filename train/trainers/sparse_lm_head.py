"""TRL's trainer with the output head on supervised positions only, each token's loss weighted by its kind and reported by kind.

Hooks pass TRL's own loss the tokens to sum, so that its scaling over accumulated batches and processes, its metrics and its
mixture-of-experts loss still apply.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
from trl.trainer.sft_trainer import SFTTrainer

from refinery.contract.segments import IGNORED_LABEL, SegmentKind
from train.rows.encoded_rows import KINDS
from train.trainers.generative_eval import GenerativeEvalMixin
from train.trainers.head_at_positions import ChosenPositions

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class SupervisedHeadTrainer(GenerativeEvalMixin, SFTTrainer):
    """Trains batches of `train.rows.packing.PackingCollator`: the fused head sees the hidden states whose next token is supervised.

    The loss is the mean over the supervised tokens of all processes and accumulated batches, in training weighted by `loss_weights` (kind
    to weight, 1 by default). Logs hold the unweighted mean of each kind as `loss_<kind>` since the last log, and the
    result's metrics as `train_loss_<kind>` since training started. Entropy and accuracy are means over the tokens since the last log.
    """

    def __init__(self, *, loss_weights: Mapping[SegmentKind, float], **arguments: Any) -> None:
        super().__init__(**arguments)
        device = self.accelerator.device
        weights = torch.tensor([loss_weights.get(kind, 1.0) for kind in KINDS], device=device)
        # Only ratios matter; TRL treats a sum of weights below 1 as an empty batch.
        self._weights = weights / weights.min() if loss_weights else None
        self._kinds: torch.Tensor | None = None  # (supervised,), while a loss is computed
        empty = torch.zeros(len(KINDS), 2, dtype=torch.float64, device=device)  # sum of losses and count, by kind
        self._logged, self._summed = empty, empty.clone()
        self._counted = torch.zeros(4, dtype=torch.float64, device=device)  # supervised, entropy, first choices, and tokens read in all
        model = cast("PreTrainedModel", self.accelerator.unwrap_model(self.model))
        self._positions = ChosenPositions(model)
        model.register_forward_hook(self._weigh)

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        """The loss of SFTTrainer. The other positions would add nothing to it."""
        labels = inputs["labels"]
        keep = self._supervised(inputs)
        self._kinds = inputs["kinds"].flatten().index_select(0, keep + 1)
        kept = {name: value for name, value in inputs.items() if name not in ("labels", "kinds", "supervised")}
        supervised = kept | {"shift_labels": labels.flatten().index_select(0, keep + 1)[None], "use_cache": False}
        try:
            with self._positions.only(keep):
                if model.training and not self.aux_loss_enabled:
                    return self._training_loss(model, supervised, num_items_in_batch)
                return super().compute_loss(model, supervised, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch)
        finally:
            self._kinds = None

    def _training_loss(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any) -> torch.Tensor:
        """The loss as in SFTTrainer, which waits for the device five times per batch for its metrics; here they wait for the next log."""
        outputs = model(**inputs, fused_lm_head=True)
        count = outputs.label_mask.sum()
        loss = -outputs.log_probs.sum() / torch.as_tensor(count if num_items_in_batch is None else num_items_in_batch).clamp(min=1)
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * (self.accelerator.num_processes // self.get_tp_size())
        read = inputs["attention_mask"].sum() if "attention_mask" in inputs else torch.tensor(inputs["input_ids"].numel())
        found = (count, outputs.entropy.detach().sum(), outputs.is_top1.sum(), read)
        self._counted += torch.stack([figure.to(self._counted.device, torch.float64) for figure in found])
        return loss

    def _supervised(self, inputs: dict[str, Any]) -> torch.Tensor:
        """The supervised positions from the collator, adjusted if context parallelism has cut the batch since."""
        parallelism = self.accelerator.parallelism_config
        if parallelism is None or not parallelism.cp_enabled:
            return inputs["supervised"]
        targets = inputs["labels"] != IGNORED_LABEL
        targets[:, 0] = False
        return targets.flatten().nonzero()[:, 0] - 1

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's log with the loss of each kind of token, over all processes."""
        if cast("PreTrainedModel", self.model).training:
            self._log_counted()
            logs |= self._by_kind(self._logged, "loss")
            if "train_runtime" in logs:
                logs |= self._by_kind(self._summed, "train_loss")
            self._logged.zero_()
        super().log(logs, start_time)

    def _log_counted(self) -> None:
        """Collective: TRL's metrics, over the tokens since the last log."""
        count, entropy, first, read = cast(torch.Tensor, self.accelerator.reduce(self._counted, reduction="sum")).tolist()
        if read:
            self._total_train_tokens += round(read)
            means = {"entropy": entropy / max(count, 1), "mean_token_accuracy": first / max(count, 1)}
            self._metrics["train"].update({name: [value] for name, value in (means | {"num_tokens": self._total_train_tokens}).items()})
        self._counted.zero_()

    def _weigh(self, module: Any, arguments: Any, output: Any) -> Any:
        if self._kinds is not None and module.training:
            losses = -output.log_probs.detach()[0]  # (supervised,)
            counted = torch.stack([losses, torch.ones_like(losses)], dim=1).double()
            self._logged.index_add_(0, self._kinds, counted)
            self._summed.index_add_(0, self._kinds, counted)
            if self._weights is not None:
                output.log_probs = output.log_probs * self._weights[self._kinds]
        return output

    def _by_kind(self, sums: torch.Tensor, name: str) -> dict[str, float]:
        """Collective: the mean over the tokens of all processes, of each kind that has any."""
        total = self.accelerator.reduce(sums.to(self.accelerator.device), reduction="sum")
        return {f"{name}_{kind}": float(loss / count) for kind, (loss, count) in zip(KINDS, total, strict=True) if count}

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Any]], device: torch.device) -> Any:
        """The divisor of a step's loss: the number of supervised tokens, or the sum of their weights."""
        if self._weights is None:
            return super()._get_num_items_in_batch(batch_samples, device)
        sums = torch.stack([_sum_of_weights(batch, self._weights) for batch in batch_samples])
        return cast(torch.Tensor, self.accelerator.gather(sums.sum().to(device))).sum()


def _sum_of_weights(batch: dict[str, Any], weights: torch.Tensor) -> torch.Tensor:
    counts = (batch["labels"][:, 1:] != IGNORED_LABEL).to(weights.dtype)
    kinds = batch["kinds"][:, 1:]
    return (weights.to(kinds.device)[kinds] * counts).sum()
