"""A batch of rollouts as padded rows, of which only some tokens are scored, and how rows are computed that share nothing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from train.trainers.head_at_positions import ChosenPositions

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Rows:
    """All (rows, tokens): `scored` marks the tokens whose log-probability is wanted, each of which has another before it."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    scored: torch.Tensor

    def split(self, size: int) -> "list[Rows]":
        """In parts of so many rows."""
        parts = (values.split(size) for values in (self.input_ids, self.attention_mask, self.scored))
        return [Rows(*part) for part in zip(*parts, strict=True)]

    def only(self, rows: torch.Tensor) -> "Rows":
        """Those that `rows` (rows,) marks, without the columns in which only others have tokens."""
        columns = (self.attention_mask.bool() & rows[:, None]).any(0)
        return Rows(*(values[rows][:, columns] for values in (self.input_ids, self.attention_mask, self.scored)))

    def opening(self) -> "Rows":
        """The first two tokens: as little as a forward pass can be that uses every weight."""
        columns = self.attention_mask[0].nonzero()[:2, 0]
        ids = self.input_ids[:1, columns]
        return Rows(ids, torch.ones_like(ids), torch.tensor([[False, True]], device=ids.device))


class SeparateRows:
    """Computes each row by itself, with a model that has TRL's fused head."""

    def __init__(self, model: "PreTrainedModel") -> None:
        self._positions = ChosenPositions(model)

    def scores(self, model: Any, rows: Rows, **options: Any) -> tuple[Any, int]:
        """(the model's output, tokens computed); its `log_probs` and `entropy` are (1, scored), of the scored tokens in their order."""
        places = rows.scored.flatten().nonzero()[:, 0]
        labels = rows.input_ids.flatten().index_select(0, places)[None]
        with self._positions.only(places - 1):
            output = model(input_ids=rows.input_ids, attention_mask=rows.attention_mask, shift_labels=labels, fused_lm_head=True, **options)
        return output, int(rows.attention_mask.sum())
