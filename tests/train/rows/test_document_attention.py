"""One kernel over joined rows gives what one call per row gives."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from train.rows import document_attention
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


def kernel_of_2_11(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None, window_size=(-1, -1)):
    """What that PyTorch's kernel computes, which takes as many keys as queries: (tokens, heads, head_dim)."""
    assert query.shape == key.shape == value.shape
    assert window_size == (-1, 0)
    parts = [
        torch.nn.functional.scaled_dot_product_attention(
            *(states[start:end].transpose(0, 1) for states in (query, key, value)), is_causal=True, scale=scale
        ).transpose(0, 1)
        for start, end in pairwise(cu_seq_q.tolist())
    ]
    return torch.cat(parts)


@pytest.mark.parametrize("key_heads", [8, 2])
def test_a_kernel_that_shares_no_heads_is_given_a_key_for_each(monkeypatch, key_heads):
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel_of_2_11)
    document_attention._varlen_keywords.cache_clear()
    query, key, value = (torch.randn(1, heads, 9, 16) for heads in (8, key_heads, key_heads))
    module: Any = torch.nn.Module()
    module.num_key_value_groups, module.is_causal = 8 // key_heads, True
    found = document_attention._varlen(query, key, value, {"cu_seq_lens_q": torch.tensor([0, 5, 9]), "max_length_q": 5})
    alone, _ = _attend(module, query, key, value, None, document_lengths=[5, 4])
    document_attention._varlen_keywords.cache_clear()
    torch.testing.assert_close(found, alone)
