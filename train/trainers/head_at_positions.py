"""The output head at chosen positions only, because most of a row is only read (prompt, evidence) and the head is a large part of a small
model.

TRL's fused head projects every position unless its GPU kernel runs, and again in the backward pass.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class ChosenPositions:
    """Within `only`, passes a model's head the hidden states at chosen positions.

    PEFT calls its base model's forward without the hooks of the base model, but with those of its decoder.
    """

    def __init__(self, model: "PreTrainedModel") -> None:
        self._places: torch.Tensor | None = None
        model.get_decoder().register_forward_hook(self._select)

    @contextmanager
    def only(self, places: torch.Tensor) -> Iterator[None]:
        """The model's forward passes in this context score `places` (chosen,) of the flattened batch, as a batch of one row."""
        self._places = places
        try:
            yield
        finally:
            self._places = None

    def _select(self, module: Any, arguments: Any, output: Any) -> Any:
        if self._places is not None:
            output.last_hidden_state = output.last_hidden_state.flatten(0, 1).index_select(0, self._places)[None]  # (1, chosen, hidden)
        return output
