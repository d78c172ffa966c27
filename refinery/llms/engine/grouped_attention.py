"""Attention of a few queries over many keys for models whose query heads share key heads, without a copy of the keys per query head.

transformers repeats keys and values for every query head when there is a mask and more than one query: four times the memory traffic
for Llama 3, in each step that decodes siblings together. Here the query heads of a group stand as further queries of its key head.
"""

from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NAME = "refinery_grouped"
_MOST_QUERIES = 16


def use_grouped_attention(model: "PreTrainedModel") -> None:
    """Let a model with scaled dot-product attention share its key heads. Other models are unchanged.

    A kernel that takes no mask of a tree (FlashAttention, FlexAttention) gives way to one that does.
    """
    if model.config._attn_implementation not in ("eager", "sdpa"):
        model.set_attn_implementation("sdpa" if model._supports_sdpa else "eager")
    config = model.config.get_text_config(decoder=True)
    if config._attn_implementation == "sdpa" and getattr(config, "num_key_value_heads", None) not in (None, config.num_attention_heads):
        AttentionInterface.register(_NAME, _grouped_attention)
        AttentionMaskInterface.register(_NAME, sdpa_mask)
        model.set_attn_implementation(_NAME)


def _grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # (rows, heads, queries, dim)
    key: torch.Tensor,  # (rows, key heads, keys, dim)
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    rows, heads, queries, dim = query.shape
    if attention_mask is None or attention_mask.shape[1] != 1 or not 1 < queries <= _MOST_QUERIES:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs)
    share = heads // key.shape[1]
    folded = query.reshape(rows, key.shape[1], share * queries, dim)
    mask = attention_mask.repeat(1, 1, share, 1)  # (rows, 1, share x queries, keys), as the folded queries stand
    attended = torch.nn.functional.scaled_dot_product_attention(folded, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling)
    return attended.reshape(rows, heads, queries, -1).transpose(1, 2).contiguous(), None
