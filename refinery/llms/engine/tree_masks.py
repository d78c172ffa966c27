"""Attention masks for tokens of a tree, in the form that a model takes: a tensor, or one for each kind of its layers.

A row's keys are in the order of their positions: its prefix, then one token of every branch for each step. So a sliding window always
cuts off the front of a row, by the same amount in every row of a batch.
"""

from typing import TYPE_CHECKING

import torch

from refinery.llms.weights.decoder_support import SLIDING, layer_kinds

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


class TreeMasks:
    """The masks of one decoding batch, step by step.

    `visible` (rows, 1, width, prefix + width x steps) says which keys each branch sees without a window. Eager attention, and the engine's
    own on a CPU, add the mask to the scores, so it holds numbers of `dtype` for them. Scaled dot-product attention takes booleans.
    """

    def __init__(self, config: "PreTrainedConfig", visible: torch.Tensor, *, prefix: int, dtype: torch.dtype) -> None:
        self.kinds, self.by_kind = layer_kinds(config), bool(getattr(config, "layer_types", None))
        self.prefix, self.width = prefix, visible.shape[2]
        self.unseen: bool | float = False
        if config._attn_implementation == "eager":
            self.unseen = torch.finfo(dtype).min
        elif visible.device.type == "cpu":
            self.unseen = float("-inf")
        if self.unseen:
            visible = torch.zeros_like(visible, dtype=dtype).masked_fill(~visible, self.unseen)
        steps = (visible.shape[-1] - prefix) // self.width
        self.window: int | None = config.sliding_window if SLIDING in self.kinds else None
        if self.window is not None and self.window >= prefix + steps:
            self.window = None  # no key of this batch is outside the window
        self.full = visible
        self.near = visible if self.window is None else visible.clone()

    def at(self, step: int) -> torch.Tensor | dict[str, torch.Tensor]:
        """The mask, or the masks by kind of layer, for the tokens of a step. Call it for the steps in order."""
        if self.window is not None:
            gone = max(0, self.prefix + step + 1 - self.window)  # tokens that are outside the window
            self.near[..., : min(gone, self.prefix) + self.width * max(0, gone - self.prefix)] = self.unseen
        seen = self.prefix + self.width * (step + 1)
        masks = {kind: (self.near if kind == SLIDING else self.full)[..., :seen] for kind in self.kinds}
        return masks if self.by_kind else masks[self.kinds[0]]
