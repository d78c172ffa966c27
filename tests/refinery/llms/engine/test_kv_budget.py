"""How many tokens of keys and values the engine holds by default."""

import pytest
import torch
from transformers import LlamaConfig

from refinery.llms.engine.kv_budget import default_kv_tokens, tokens_in

GIB = 2**30
LLAMA_3_8B = LlamaConfig(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8)
LLAMA_2_7B = LlamaConfig(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32)


@pytest.mark.parametrize(
    ("config", "dtype", "of_a_token"),
    [
        (LLAMA_3_8B, torch.bfloat16, 2 * (2 * 32 * 8 * 128 + 4096)),
        (LLAMA_2_7B, torch.bfloat16, 2 * (2 * 32 * 32 * 128 + 4096)),
        (LLAMA_3_8B, torch.float32, 4 * (2 * 32 * 8 * 128 + 4096)),
    ],
)
def test_half_of_a_gpus_free_memory_holds_them(config, dtype, of_a_token):
    tokens = tokens_in(60 * GIB, config, dtype)
    assert tokens * of_a_token <= 30 * GIB < (tokens + 1) * of_a_token


def test_a_small_gpu_still_holds_a_few_sequences_and_a_small_model_no_more_than_are_of_use():
    assert tokens_in(GIB // 100, LLAMA_2_7B, torch.bfloat16) == 4096
    assert tokens_in(80 * GIB, LlamaConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4), torch.float32) == 2**20


def test_a_processor_holds_a_fixed_number(tiny_model):
    assert default_kv_tokens(tiny_model, "causal") == 65_536
