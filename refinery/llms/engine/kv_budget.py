"""The default number of tokens whose keys and values the engine holds: on a GPU, as many as fit in half of its free memory."""

from typing import TYPE_CHECKING

import torch

from refinery.llms.weights.families import FamilyName

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedConfig, PreTrainedModel

_ELSEWHERE = 65_536
_SHARE = 0.5  # the rest is for other results of a pass, and for growing the tensors
_MOST = 2**20  # more would not be faster, and each slot is also tracked on the host


def default_kv_tokens(model: "PreTrainedModel | PeftModel", family: FamilyName) -> int:
    """The default of `kv_tokens` for a model that is on its device."""
    device = next(model.parameters()).device
    if family != "causal" or device.type != "cuda":
        return _ELSEWHERE
    free, _ = torch.cuda.mem_get_info(device)
    return tokens_in(free, model.config, model.dtype)


def tokens_in(free: int, config: "PreTrainedConfig", dtype: torch.dtype) -> int:
    """The number of tokens that fit in half of `free` bytes; at least enough for a few sequences, which may then run out of memory."""
    return max(4096, min(_MOST, int(_SHARE * free) // (numbers_of_a_token(config) * dtype.itemsize)))


def numbers_of_a_token(config: "PreTrainedConfig") -> int:
    """The count of numbers that the engine holds per token: keys and values of every layer, and the last hidden state."""
    text = config.get_text_config(decoder=True)
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return 2 * text.num_hidden_layers * heads * dim + text.hidden_size
