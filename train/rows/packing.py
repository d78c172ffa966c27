"""Batches of encoded rows for the causal trainer: padded, or joined into one sequence in which rows do not see each other.

A joined batch has the inputs that each attention needs to keep its rows apart: `position_ids` that restart at 0 for each row and, for
FlashAttention, the cumulative lengths; for train/rows/document_attention.py, the lengths. TRL's best-fit-decreasing bins pack the rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from datasets.fingerprint import generate_random_fingerprint
from torch.nn.utils.rnn import pad_sequence
from trl.data_utils import pack_dataset

from refinery.contract.segments import IGNORED_LABEL, EncodedRow
from train.rows.encoded_rows import EncodedRows

if TYPE_CHECKING:
    import numpy as np


def build_dataset(rows: Sequence[EncodedRow], *, bin_length: int | None = None) -> Dataset:
    """`input_ids`, `labels` and `kinds` (indices into KINDS) of each row; with `bin_length`, of rows packed into bins of at most that.

    A packed example also has `seq_lengths`, its rows' lengths. No row may be longer than `bin_length`: TRL would cut its end silently.
    The dataset reads the arrays of `EncodedRows`, which are put in the bins' order for that.
    """
    encoded = EncodedRows.of(rows)
    if bin_length is None:
        return _dataset(encoded.columns, encoded.starts)
    assert max(encoded.lengths) <= bin_length
    order, ends = _bins(encoded, bin_length)
    encoded.reorder(order)
    dataset = _dataset(encoded.columns, [encoded.starts[end] for end in (0, *ends)])
    lengths = encoded.lengths
    in_bins = [lengths[begin:end] for begin, end in pairwise((0, *ends))]
    return dataset.add_column("seq_lengths", in_bins, new_fingerprint=generate_random_fingerprint())


def _dataset(columns: "Mapping[str, np.ndarray[Any, Any]]", starts: Sequence[int]) -> Dataset:
    """Examples from one start to the next, in the same memory."""
    import pyarrow as pa

    offsets = pa.array(starts, pa.int64())
    lists = {name: pa.LargeListArray.from_arrays(offsets, pa.array(values)) for name, values in columns.items()}
    return Dataset(pa.table(lists), fingerprint=generate_random_fingerprint())  # else a hash of a copy of all rows


def _bins(rows: EncodedRows, bin_length: int) -> tuple[list[int], list[int]]:
    """(numbers of the rows in the order of TRL's bins, where among them each bin ends)."""
    import numpy as np

    numbers = np.repeat(np.arange(len(rows), dtype=np.int32), rows.lengths)  # of the row that each token is in
    packed: Any = pack_dataset(_dataset({"row": numbers}, rows.starts), bin_length, strategy="bfd")
    order, ends = list[int](), list[int]()
    for example in packed.with_format("numpy"):
        order += example["row"][np.cumsum(example["seq_lengths"]) - 1].tolist()
        ends.append(len(order))
    return order, ends


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
