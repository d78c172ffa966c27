"""Scaled dot-product attention within each row of a joined sequence, without an extra package.

transformers' `sdpa` builds a mask over the whole sequence and pays for all of it: (sum of lengths) squared. In 16 bits on a CUDA GPU,
PyTorch's own FlashAttention takes the rows' boundaries and does all of them in one kernel. Elsewhere, one call per row pays the sum of
squares, needs no mask, and so keeps the causal kernel.
"""

from functools import cache
from importlib.util import find_spec
from inspect import signature
from typing import Any, cast

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "document_sdpa"


def register() -> str:
    """Make the attention known to transformers; returns the name to set on a model."""
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _mask)
    return NAME


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,  # (batch, heads, tokens, head_dim); so are key and value, of as many or fewer heads
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    document_lengths: list[int] | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """As `sdpa`, whatever the batch; a joined one without a mask is attended row by row. Returns (batch, tokens, heads, head_dim)."""
    if document_lengths is None or attention_mask is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    if (
        query.is_cuda
        and query.dtype in (torch.bfloat16, torch.float16)
        and not options.get("dropout")
        and "window_size" in _varlen_keywords()
    ):
        return _varlen(query, key, value, options), None
    documents = zip(*(states.split(document_lengths, dim=2) for states in (query, key, value)), strict=True)
    attended = [sdpa_attention_forward(module, queries, keys, values, None, **options)[0] for queries, keys, values in documents]
    return torch.cat(attended, dim=1), None


def _varlen(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    ends, longest = options["cu_seq_lens_q"], options["max_length_q"]
    queries, keys, values = (states[0].transpose(0, 1) for states in (query, key, value))  # (tokens, heads, head_dim)
    share, causal = query.shape[1] // key.shape[1], (-1, 0)
    shared: dict[str, Any] = {}
    if share > 1 and "enable_gqa" in _varlen_keywords():
        shared = {"enable_gqa": True}
    elif share > 1:
        keys, values = (states.repeat_interleave(share, dim=1) for states in (keys, values))
    attended = varlen_attn(queries, keys, values, ends, ends, longest, longest, scale=options.get("scaling"), window_size=causal, **shared)
    return cast(torch.Tensor, attended)[None]


@cache
def _varlen_keywords() -> frozenset[str]:
    """The keywords of this PyTorch's kernel: 2.10 has no `window_size` yet, 2.12 adds `enable_gqa`. Empty without a kernel."""
    if find_spec("torch.nn.attention.varlen") is None:
        return frozenset()
    from torch.nn.attention.varlen import varlen_attn

    return frozenset(signature(varlen_attn).parameters)


def _mask(
    *,
    attention_mask: torch.Tensor | None = None,
    allow_is_causal_skip: bool = True,
    local_size: int | None = None,
    **options: Any,
) -> torch.Tensor | None:
    """None for a joined batch, which transformers marks by forbidding the causal shortcut without padding; else sdpa's mask.

    A sliding window (`local_size`) still needs its mask.
    """
    if attention_mask is None and not allow_is_causal_skip and local_size is None:
        return None
    return sdpa_mask(attention_mask=attention_mask, allow_is_causal_skip=allow_is_causal_skip, local_size=local_size, **options)
