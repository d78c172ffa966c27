"""Attention masks for tokens of a tree, in the form that a model takes: a tensor, or one for each kind of its layers.

A row's keys are in the order of their positions: its prefix, then one token of every branch for each step. So a sliding window always
cuts off the front of a row, by the same amount in every row of a batch.
"""

from typing import TYPE_CHECKING

import torch

from refinery.llms.engine.attention import added_mask, mask_copies
from refinery.llms.weights.decoder_support import SLIDING, layer_kinds

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


class TreeMasks:
    """The masks of one decoding batch, step by step, to be added to the scores of keys.

    `visible` (rows, 1, width, prefix + width x steps) says which keys each branch sees without a window. Masks of `whole` rows always
    have all keys, of which those of later steps are hidden until then; others end with the keys of their step.
    """

    def __init__(self, config: "PreTrainedConfig", visible: torch.Tensor, *, prefix: int, dtype: torch.dtype, whole: bool = False) -> None:
        self.kinds, self.by_kind = layer_kinds(config), bool(getattr(config, "layer_types", None))
        self.prefix, self.width, self.whole = prefix, visible.shape[2], whole
        self.unseen = torch.finfo(dtype).min if config._attn_implementation == "eager" else float("-inf")
        steps = (visible.shape[-1] - prefix) // self.width
        self.window: int | None = config.sliding_window if SLIDING in self.kinds else None
        if self.window is not None and self.window >= prefix + steps:
            self.window = None  # no key of this batch is outside the window
        self.full = added_mask(visible, dtype, unseen=self.unseen).repeat(1, 1, mask_copies(config, self.width), 1)
        if whole:
            self.own = self.full[..., prefix : prefix + self.width].clone()
            self.full[..., prefix:] = self.unseen
        self.near = self.full if self.window is None else self.full.clone()

    def at(self, step: int) -> torch.Tensor | dict[str, torch.Tensor]:
        """The mask, or the masks by kind of layer, for the tokens of a step. Call it for the steps in order."""
        start = self.prefix + self.width * step
        if self.whole:
            for mask in {id(mask): mask for mask in (self.full, self.near)}.values():
                mask[..., start : start + self.width] = self.own
        if self.window is not None:
            gone = max(0, self.prefix + step + 1 - self.window)  # tokens that are outside the window
            self.near[..., : min(gone, self.prefix) + self.width * max(0, gone - self.prefix)] = self.unseen
        seen = None if self.whole else start + self.width
        masks = {kind: (self.near if kind == SLIDING else self.full)[..., :seen] for kind in self.kinds}
        return masks if self.by_kind else masks[self.kinds[0]]
