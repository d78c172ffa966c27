"""Batches of encoded rows for the causal trainer: padded, or joined into one sequence in which rows do not see each other.

A joined batch has the inputs that each attention needs to keep its rows apart: `position_ids` that restart at 0 for each row and, for
FlashAttention, the cumulative lengths; for train/rows/document_attention.py, the lengths. TRL's best-fit-decreasing bins pack the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from datasets.fingerprint import generate_random_fingerprint
from torch.nn.utils.rnn import pad_sequence
from trl.data_utils import pack_dataset

from refinery.contract.segments import IGNORED_LABEL, EncodedRow
from train.rows.encoded_rows import EncodedRows


def build_dataset(rows: Sequence[EncodedRow], *, bin_length: int | None = None) -> Dataset:
    """`input_ids`, `labels` and `kinds` (indices into KINDS) of each row; with `bin_length`, of rows packed into bins of at most that.

    A packed example also has `seq_lengths`, its rows' lengths. No row may be longer than `bin_length`: TRL would cut its end silently.
    """
    import pyarrow as pa

    encoded = EncodedRows.of(rows)
    starts = pa.array(encoded.starts, pa.int64())
    columns = {name: pa.LargeListArray.from_arrays(starts, pa.array(values)) for name, values in encoded.columns.items()}
    dataset = Dataset(pa.table(columns), fingerprint=generate_random_fingerprint())  # else a hash of a copy of all rows
    if bin_length is None:
        return dataset
    assert max(encoded.lengths) <= bin_length
    return pack_dataset(dataset, bin_length, strategy="bfd")


@dataclass(frozen=True, slots=True)
class PackingCollator:
    """Examples of `build_dataset` to one batch of tensors, (examples, longest) padded or (1, all tokens) joined."""

    pad_token_id: int
    joined: bool

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """`input_ids`, `labels` and `kinds`, with an `attention_mask` or the boundaries of a joined batch's rows; and `supervised`, the
        positions in the flattened batch whose next token is supervised: counting a mask would synchronize with the device."""
        batch = self._batch(examples)
        targets = batch["labels"] != IGNORED_LABEL
        targets[:, 0] = False  # nothing precedes it
        return batch | {"supervised": targets.flatten().nonzero()[:, 0] - 1}

    def _batch(self, examples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        fill = {"input_ids": self.pad_token_id, "labels": IGNORED_LABEL, "kinds": 0}
        columns = {name: [torch.tensor(example[name]) for example in examples] for name in fill}
        if self.joined:
            lengths = [length for example in examples for length in example.get("seq_lengths", [len(example["input_ids"])])]
            joined = separated({name: torch.cat(column)[None] for name, column in columns.items()}, lengths)
            joined["labels"][0, joined["cu_seq_lens_q"][:-1].long()] = IGNORED_LABEL  # the first token of a row has no context
            return joined
        batch = {name: pad_sequence(column, batch_first=True, padding_value=fill[name]) for name, column in columns.items()}
        lengths = torch.tensor([len(example["input_ids"]) for example in examples])
        return batch | {"attention_mask": (torch.arange(int(lengths.max())) < lengths[:, None]).long()}


def separated(batch: dict[str, torch.Tensor], lengths: list[int]) -> dict[str, Any]:
    """A batch of joined rows with the inputs that mark the boundaries between rows of these lengths."""
    ends = torch.tensor([0, *lengths]).cumsum(0)
    return batch | {
        "position_ids": torch.cat([torch.arange(length) for length in lengths])[None],
        "document_lengths": lengths,
        "cu_seq_lens_q": ends.int(),
        "cu_seq_lens_k": ends.int(),
        "max_length_q": max(lengths),
        "max_length_k": max(lengths),
    }
