"""One kernel over joined rows gives what one call per row gives."""

from typing import Any

import pytest
import torch

from train.rows.document_attention import _attend


@pytest.mark.gpu
@pytest.mark.parametrize("key_heads", [8, 2])
def test_joined_rows_on_a_gpu_equal_rows_one_by_one(key_heads):
    lengths = [5, 130, 1, 64]
    total = sum(lengths)
    query, key, value = (torch.randn(1, heads, total, 64, device="cuda", dtype=torch.bfloat16) for heads in (8, key_heads, key_heads))
    ends = torch.tensor([0, *lengths], device="cuda").cumsum(0).int()
    module: Any = torch.nn.Module()  # as a model's attention layer
    module.num_key_value_groups, module.is_causal = 8 // key_heads, True
    boundaries = {"document_lengths": lengths, "cu_seq_lens_q": ends, "max_length_q": max(lengths)}
    together, _ = _attend(module, query, key, value, None, **boundaries)
    alone, _ = _attend(module, query, key, value, None, dropout=1e-12, **boundaries)  # any dropout takes one call per row
    torch.testing.assert_close(together, alone, rtol=2e-2, atol=2e-2)
