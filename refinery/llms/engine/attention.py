"""Attention for the engine's batches. It replaces transformers' own in models with scaled dot-product attention.

Where query heads share key heads, transformers repeats keys and values for every query head when there is a mask and more than one
query: four times the memory traffic for Llama 3, in each step that decodes siblings together. Here the query heads of a group become
additional queries of its key head. A step's mask already has a row for each of them (`mask_copies`), so no layer has to repeat it.

On a processor, a pass over prefixes attends in blocks of queries, each over the keys up to its last query's. Given a mask, which every
prefix that continues another one needs, the kernel would compute all keys for all queries and then discard the later ones.
"""

from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_NAME = "refinery"
_FEW_QUERIES = 16  # tokens of one step of decoding siblings
_BLOCK = 128


def use_engine_attention(model: "PreTrainedModel") -> None:
    """Let a model with scaled dot-product attention use this module's. Others are unchanged.

    A kernel that cannot use a tree's mask (FlashAttention, FlexAttention) is replaced by one that can.
    """
    if model.config._attn_implementation not in ("eager", "sdpa"):
        model.set_attn_implementation("sdpa" if model._supports_sdpa else "eager")
    config = model.config.get_text_config(decoder=True)
    shared = getattr(config, "num_key_value_heads", None) not in (None, config.num_attention_heads)
    if config._attn_implementation == "sdpa" and (shared or (model.device.type == "cpu" and model._supports_attention_backend)):
        AttentionInterface.register(_NAME, _attention)
        AttentionMaskInterface.register(_NAME, _mask)
        model.set_attn_implementation(_NAME)


def mask_copies(config: "PreTrainedConfig", queries: int) -> int:
    """How often a step's mask repeats its rows of `queries`: once for each query head that shares a key head, if they are folded."""
    heads, key_heads = config.num_attention_heads, getattr(config, "num_key_value_heads", None)
    folds = config._attn_implementation == _NAME and 1 < queries <= _FEW_QUERIES
    return heads // key_heads if folds and isinstance(key_heads, int) else 1


def added_mask(seen: torch.Tensor, dtype: torch.dtype, *, unseen: float = float("-inf")) -> torch.Tensor:
    """The mask to add to the scores of keys: 0 for `seen` keys, else `unseen`. Given booleans, every layer would convert them again."""
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, unseen)


def _mask(*args: Any, **kwargs: Any) -> torch.Tensor | None:
    mask = sdpa_mask(*args, **kwargs)
    return mask if mask is None else added_mask(mask, kwargs["dtype"])


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # (rows, heads, queries, dim)
    key: torch.Tensor,  # (rows, key heads, keys, dim)
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # (rows, 1, queries, keys), or as many times the queries as query heads share a key head
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    queries, share = query.shape[2], query.shape[1] // key.shape[1]
    if attention_mask is not None and attention_mask.shape[2] > queries:
        if attention_mask.shape[2] == share * queries:
            return _folded(query, key, value, attention_mask, dropout, scaling).contiguous(), None
        attention_mask = attention_mask[:, :, :queries]  # this layer shares otherwise than the configuration says
    in_blocks, folded = query.device.type == "cpu" and queries > _FEW_QUERIES, share > 1 and 1 < queries <= _FEW_QUERIES
    if attention_mask is None or attention_mask.shape[1] != 1 or not (in_blocks or folded):
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs)
    parts = []
    for start in range(0, queries, _BLOCK):
        stop = min(start + _BLOCK, queries)
        seen = key.shape[2] - queries + stop  # the queries' own keys are the last ones
        mask = attention_mask[:, :, start:stop, :seen]
        mask = mask.repeat(1, 1, share, 1) if share > 1 else mask
        parts.append(_folded(query[:, :, start:stop], key[:, :, :seen], value[:, :, :seen], mask, dropout, scaling))
    return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0].contiguous(), None


def _folded(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, dropout: float, scaling: float | None
) -> torch.Tensor:
    """Attention output (rows, queries, heads, dim), computed with the query heads that share a key head stacked as its queries.

    `mask` is (rows, 1, share x queries, keys), in the order of the queries.
    """
    rows, heads, queries, dim = query.shape
    query = query.reshape(rows, key.shape[1], heads // key.shape[1] * queries, dim)
    attended = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling)
    return attended.reshape(rows, heads, queries, -1).transpose(1, 2)
