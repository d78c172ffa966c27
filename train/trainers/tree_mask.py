"""The attention mask of texts in one sequence, each token of which sees its own text only, in the form that a model takes.

A token is seen by itself and by those directly after it, up to its `end`: in rows that are joined, that of its row, and in a walk through a
tree of prefixes, that of the last text that continues it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from refinery.llms.weights.decoder_support import SLIDING, layer_kinds

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def tree_mask(ends: torch.Tensor, positions: torch.Tensor, config: "PreTrainedConfig", dtype: torch.dtype) -> Any:
    """(1, 1, tokens, tokens), by kind of layer where the model has several; `ends` and `positions` are (tokens,).

    It is boolean, and for eager attention it is what is added to the scores, in `dtype`.
    """
    numbers = torch.arange(len(ends), device=ends.device)
    seen = (numbers[None, :] <= numbers[:, None]) & (numbers[:, None] < ends[None, :])
    kinds, masks = layer_kinds(config), {}
    for kind in kinds:
        masks[kind] = seen if kind != SLIDING else seen & _near(positions, config)
        if config._attn_implementation == "eager":
            masks[kind] = torch.zeros_like(seen, dtype=dtype).masked_fill(~masks[kind], torch.finfo(dtype).min)
        masks[kind] = masks[kind][None, None]
    return masks if getattr(config, "layer_types", None) else masks[kinds[0]]


def _near(positions: torch.Tensor, config: "PreTrainedConfig") -> torch.Tensor:
    window: int = config.sliding_window  # pyright: ignore[reportAttributeAccessIssue]
    return positions[:, None] - positions[None, :] < window


class DecoderMask:
    """Gives the decoder of a model, while `mask` is set, this one. The model's loss that balances experts would not take it.

    PEFT calls its base model's forward without the hooks of the base model, but with those of its decoder.
    """

    def __init__(self, model: "PreTrainedModel") -> None:
        self.mask: Any = None
        model.get_decoder().register_forward_pre_hook(self._give, with_kwargs=True)

    @contextmanager
    def given(self, mask: Any) -> Iterator[None]:
        """The model's forward passes in this context have this mask."""
        self.mask = mask
        try:
            yield
        finally:
            self.mask = None

    def _give(self, module: Any, arguments: Any, inputs: dict[str, Any]) -> Any:
        return None if self.mask is None else (arguments, inputs | {"attention_mask": self.mask})
