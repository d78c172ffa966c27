"""The attention mask of several texts in one sequence, where each token sees only its own text, in the form that a model takes.

A token is visible to itself and to the tokens directly after it, up to its `end`: the end of its row in joined rows, and the end of the
last text that continues it in a walk through a tree of prefixes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from refinery.llms.weights.decoder_support import SLIDING, layer_kinds

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def tree_mask(ends: torch.Tensor, positions: torch.Tensor, config: "PreTrainedConfig", dtype: torch.dtype) -> Any:
    """The mask (1, 1, tokens, tokens), by kind of layer if the model has several; `ends` and `positions` are (tokens,).

    It is boolean; for eager attention, it holds the values to add to the scores, in `dtype`.
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
    """Gives the decoder of a model `mask` while it is set. Passed to the model itself, it would break the loss that balances experts.

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
