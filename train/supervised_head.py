"""TRL's trainer with the output head on supervised positions only, on every device.

TRL projects the other positions too unless its GPU kernel runs. In a row of evidence and prompt few positions are supervised, and the head
is a large part of a small model.
"""

from typing import Any

import torch
from trl import SFTTrainer

from refinery.segments import IGNORED_LABEL


class SupervisedHeadTrainer(SFTTrainer):
    """Hands the fused head the hidden states whose next token is supervised, and their labels as `shift_labels`."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._keep: torch.Tensor | None = None
        self.accelerator.unwrap_model(self.model).get_decoder().register_forward_hook(self._select)

    def _select(self, module: Any, arguments: Any, output: Any) -> Any:
        if self._keep is not None:
            output.last_hidden_state = output.last_hidden_state[:, :-1][self._keep][None]  # (1, supervised, hidden)
        return output

    def compute_loss(self, model: Any, inputs: dict[str, Any], **options: Any) -> Any:
        """The loss of SFTTrainer, which is what the other positions would add nothing to."""
        targets = inputs["labels"][:, 1:]
        self._keep = targets != IGNORED_LABEL
        kept = {name: value for name, value in inputs.items() if name != "labels"}
        try:
            return super().compute_loss(model, kept | {"shift_labels": targets[self._keep][None]}, **options)
        finally:
            self._keep = None
