"""TRL's DPOTrainer on pairs that are already token ids and where only some tokens count in the loss.

TRL tokenizes texts itself and takes everything after the prompt as the completion. Its loss, though, hangs on the collator's
`completion_mask` alone, so a collator of our own is all that masked evidence needs (trl 1.16).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from trl.trainer.dpo_trainer import DPOTrainer

from refinery.contract.segments import IGNORED_LABEL
from train.rows.length_filter import num_tokens
from train.rows.pairs import PreferenceRow
from train.trainers.generative_eval import GenerativeEvalMixin

_SIDES = ("chosen", "rejected")


def build_dataset(rows: Sequence[PreferenceRow]) -> Dataset:
    """`<side>_ids` and `<side>_mask` (1 where a token counts) of each pair's two sides."""
    columns: dict[str, list[Any]] = {}
    for side in _SIDES:
        encoded = [getattr(row, side) for row in rows]
        columns[f"{side}_ids"] = [row.input_ids for row in encoded]
        columns[f"{side}_mask"] = [[int(label != IGNORED_LABEL) for label in row.labels] for row in encoded]
    columns["length"] = [num_tokens(row) for row in rows]  # by which `group_by_length` batches
    return Dataset.from_dict(columns)


@dataclass(frozen=True, slots=True)
class PreferenceCollator:
    """Examples of `build_dataset` to one batch, (2 x pairs, longest): first every chosen side, then every rejected one."""

    pad_token_id: int

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """`input_ids`, `attention_mask` and `completion_mask`."""

        def padded(column: str, fill: int) -> torch.Tensor:
            rows = [torch.tensor(example[f"{side}_{column}"]) for side in _SIDES for example in examples]
            return pad_sequence(rows, batch_first=True, padding_value=fill)

        lengths = torch.tensor([len(example[f"{side}_ids"]) for side in _SIDES for example in examples])
        return {
            "input_ids": padded("ids", self.pad_token_id),
            "attention_mask": (torch.arange(int(lengths.max())) < lengths[:, None]).long(),
            "completion_mask": padded("mask", 0),
        }


class PreferenceTrainer(GenerativeEvalMixin, DPOTrainer):
    """Trains batches of `PreferenceCollator`; nothing is tokenized again."""

    def _prepare_dataset(self, dataset: Any, processing_class: Any, args: Any, dataset_name: str) -> Any:
        return dataset
