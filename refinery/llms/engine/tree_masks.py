"""Which keys each token of a tree sees, in the form that a model takes: a tensor, or one for each kind of its layers.

A row's keys stand in the order of their positions: its prefix, then one token of every branch for each step. So what a sliding window
leaves out is always at the front of a row, and equally much of every row of a batch.
"""

from typing import TYPE_CHECKING

import torch

from refinery.llms.weights.decoder_support import SLIDING, layer_kinds

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


class TreeMasks:
    """The masks of one decoding batch, step by step.

    `visible` (rows, 1, width, prefix + width x steps) says which keys each branch sees where there is no window. Eager attention adds its
    mask to the scores, so that it is given numbers of `dtype`, as is the engine's on a processor; scaled dot-product attention takes truth
    values.
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
            self.window = None  # nothing in this batch is as far away
        self.full = visible
        self.near = visible if self.window is None else visible.clone()

    def at(self, step: int) -> torch.Tensor | dict[str, torch.Tensor]:
        """The mask, or the masks by kind of layer, for the tokens of a step; steps are asked for in order."""
        if self.window is not None:
            gone = max(0, self.prefix + step + 1 - self.window)  # tokens of a text that are too far away
            self.near[..., : min(gone, self.prefix) + self.width * max(0, gone - self.prefix)] = self.unseen
        seen = self.prefix + self.width * (step + 1)
        masks = {kind: (self.near if kind == SLIDING else self.full)[..., :seen] for kind in self.kinds}
        return masks if self.by_kind else masks[self.kinds[0]]
