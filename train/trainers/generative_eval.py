"""Trainers that also evaluate a model by its use: at each evaluation it answers held-out rows, and its answers are scored."""

from typing import Any, cast

import torch
from accelerate.utils import broadcast_object_list
from transformers import PreTrainedModel, Seq2SeqTrainer, Trainer

from refinery.contract.segments import IGNORED_LABEL
from refinery.contract.tokenizer import Tokenizer
from train.recipe import TrainRecipe
from train.trainers.evaluate import evaluate_model
from train.trainers.tied_weights import KnowsTiedWeights


class GenerativeEvalMixin(KnowsTiedWeights):
    """Adds the scores of train/trainers/evaluate.py to a Trainer's evaluation as `eval_<name>`, from which the best checkpoint is chosen.

    Every process answers all rows: that takes no longer than one process doing so, and a model that is split over processes can answer only
    if all of them run it.
    """

    def __init__(self, *, recipe: TrainRecipe, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._recipe = recipe

    def evaluate(self, *arguments: Any, **options: Any) -> dict[str, float]:
        """The loss on the held-out rows, then the scores."""
        metrics = super().evaluate(*arguments, **options)
        model = cast(PreTrainedModel, self.accelerator.unwrap_model(self.model))
        tokenizer = cast(Tokenizer, self.processing_class)
        scores = evaluate_model(model, tokenizer, self._recipe)
        agreed = broadcast_object_list([{f"eval_{name}": value for name, value in scores.items()}])[0]
        self.log(dict(agreed))
        return metrics | agreed

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Among checkpoints with the same score, which is common with few held-out rows, choose the one with the lowest loss."""
        name, state = self.args.metric_for_best_model, self.state
        if name is None or metrics[name] != state.best_metric or "eval_loss" not in metrics:
            return super()._determine_best_metric(metrics, trial)
        of_best = [log["eval_loss"] for log in state.log_history if log["step"] == state.best_global_step and "eval_loss" in log]
        if not metrics["eval_loss"] < min(of_best, default=float("inf")):
            return False
        state.best_global_step = state.global_step
        return True


class ScoredSeq2SeqTrainer(GenerativeEvalMixin, Seq2SeqTrainer):
    """For encoder-decoders."""


class ScoredTrainer(GenerativeEvalMixin, Trainer):
    """For encoders with a classification head."""


def mean_cross_entropy(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    """Mean loss over the labels of all accumulated batches and processes.

    T5 and BERT accept `num_items_in_batch` but ignore it: their own loss is a mean over one batch, which the trainer would then add up over
    the accumulated batches (transformers 5.23).
    """
    logits = outputs.logits.float().flatten(0, -2)
    total = torch.nn.functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED_LABEL, reduction="sum")
    return total / ((labels != IGNORED_LABEL).sum() if num_items_in_batch is None else num_items_in_batch)
