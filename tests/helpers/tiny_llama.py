"""A random Llama of a few thousand weights, which tests load, train and decode with in place of a real one."""

from pathlib import Path
from typing import Any


def tiny_llama(tokenizer: Any, **values: Any) -> Any:
    """The same weights every time; it begins, ends and pads as the tokenizer does. `values` of a LlamaConfig go over its own."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "initializer_range": 0.2}
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{"vocab_size": len(tokenizer), **shape, **ids, **values})).eval()


def saved_llama(folder: Path, tokenizer: Any, **values: Any) -> Path:
    """The folder, with such a model and its tokenizer in it."""
    tiny_llama(tokenizer, **values).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
