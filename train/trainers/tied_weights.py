"""Loading a checkpoint into a model with tied weights, such as an output embedding that is tied to the input embedding.

A checkpoint has such a weight once, so transformers (5.23) warns of missing keys whenever a run is resumed or the best checkpoint is
restored at the end (`load_best_model_at_end`), although a weight loaded under one name is loaded under both.
"""

from typing import Any, cast

import torch

from train.trainers.loss_sums import KeepsSums


class KnowsTiedWeights(KeepsSums):
    """Mixin of a Trainer that also limits warnings to weights that a checkpoint has under none of their names."""

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        weights = dict(cast(torch.nn.Module, self.model).named_parameters(remove_duplicate=False))
        missing = set(load_result.missing_keys)
        loaded = {id(weight) for name, weight in weights.items() if name not in missing}
        without = [name for name in load_result.missing_keys if id(weights.get(name)) not in loaded]
        super()._issue_warnings_after_load(load_result._replace(missing_keys=without))
