"""The default number of tokens whose keys and values the engine holds: as many as fit in a part of the memory that is free now."""

from typing import TYPE_CHECKING

import torch

from refinery.llms.weights.device import free_memory
from refinery.llms.weights.families import FamilyName

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedConfig, PreTrainedModel

_BATCHED = 65_536  # tokens of a batch, for families that keep nothing between batches
# Of a GPU, the rest is for other results of a pass, the space of padded steps, and growing the tensors. A machine's own memory is shared
# with other programs.
_SHARE_OF_GPU, _SHARE_OF_MACHINE = 0.5, 0.25
_LEAST = 4096  # a few sequences, which may then run out of memory
_MOST = 2**20  # more would not be faster, and each slot is also tracked on the host


def default_kv_tokens(model: "PreTrainedModel | PeftModel", family: FamilyName) -> int:
    """The default of `kv_tokens` for a model that is on its device."""
    device = next(model.parameters()).device
    if family != "causal":
        return _BATCHED
    share = _SHARE_OF_MACHINE if device.type in ("cpu", "mps") else _SHARE_OF_GPU
    return tokens_in(int(share * free_memory(str(device))), model.config, model.dtype)


def tokens_in(memory: int, config: "PreTrainedConfig", dtype: torch.dtype) -> int:
    """The number of tokens that fit in so many bytes, within limits."""
    return max(_LEAST, min(_MOST, memory // (numbers_of_a_token(config) * dtype.itemsize)))


def numbers_of_a_token(config: "PreTrainedConfig") -> int:
    """The count of numbers that the engine holds per token: keys and values of every layer, and the last hidden state."""
    text = config.get_text_config(decoder=True)
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return 2 * text.num_hidden_layers * heads * dim + text.hidden_size
