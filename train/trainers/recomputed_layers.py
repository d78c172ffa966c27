"""Which layers the backward pass computes again: of each stack the first ones, which it reaches when it has released the others."""

import math
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.modeling_layers import GradientCheckpointingLayer


class RecomputeFirstLayers(TrainerCallback):
    """Leaves the last layers of each stack out of what is computed again, when `gradient_checkpointing` is a share."""

    def __init__(self, share: float) -> None:
        self._share = share

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: Any, **_: Any) -> None:
        """The trainer has turned it on for every layer by then."""
        for stack in _stacks(model):
            for layer in stack[math.ceil(self._share * len(stack)) :]:
                layer.gradient_checkpointing = False


def _stacks(model: Any) -> list[list[GradientCheckpointingLayer]]:
    """The model's stacks of layers: one of a decoder, two of an encoder-decoder."""
    lists = (module for module in model.modules() if isinstance(module, torch.nn.ModuleList))
    stacks = ([layer for layer in layers if isinstance(layer, GradientCheckpointingLayer)] for layers in lists)
    return [stack for stack in stacks if stack]
