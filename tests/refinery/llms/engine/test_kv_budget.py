"""How many tokens of keys and values the engine holds by default."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from refinery.llms.engine import kv_budget
from refinery.llms.engine.kv_budget import default_kv_tokens, tokens_in
from refinery.llms.weights.device import free_memory, left_in_cgroup

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
def test_they_fill_their_share_of_memory(config, dtype, of_a_token):
    tokens = tokens_in(30 * GIB, config, dtype)
    assert tokens * of_a_token <= 30 * GIB < (tokens + 1) * of_a_token


def test_a_small_gpu_still_holds_a_few_sequences_and_a_small_model_no_more_than_are_of_use():
    assert tokens_in(GIB // 100, LLAMA_2_7B, torch.bfloat16) == 4096
    assert tokens_in(80 * GIB, LlamaConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4), torch.float32) == 2**20


def test_a_processor_holds_what_fits_in_a_quarter_of_the_memory_that_is_free(monkeypatch):
    config = LlamaConfig(vocab_size=8, hidden_size=64, intermediate_size=8, num_hidden_layers=2, num_attention_heads=4)
    model, of_a_token = LlamaForCausalLM(config), 4 * (2 * 2 * 64 + 64)
    monkeypatch.setattr(kv_budget, "free_memory", lambda device: 4 * 10_000 * of_a_token)
    assert default_kv_tokens(model, "causal") == 10_000
    assert default_kv_tokens(model, "seq2seq") == 65_536


def test_processes_of_one_machine_share_what_is_free(monkeypatch):
    alone = free_memory("cpu")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert 0 < free_memory("cpu") < alone / 2


@pytest.mark.parametrize(
    ("limit", "used", "cached"),
    [
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_a_containers_limit_counts_what_it_has_used_without_cached_files(tmp_path, limit, used, cached):
    assert left_in_cgroup(tmp_path) is None
    stat = (tmp_path / used).with_name("memory.stat")
    stat.parent.mkdir(exist_ok=True)
    for file, text in ((tmp_path / limit, f"{8 * GIB}\n"), (tmp_path / used, f"{6 * GIB}\n"), (stat, f"anon {GIB}\n{cached} {3 * GIB}\n")):
        file.write_text(text)
    assert left_in_cgroup(tmp_path) == 5 * GIB


def test_a_container_without_a_limit_has_the_whole_machine(tmp_path):
    for name, text in {"memory.max": "max\n", "memory.current": f"{GIB}\n", "memory.stat": "anon 1\n"}.items():
        (tmp_path / name).write_text(text)
    assert left_in_cgroup(tmp_path) is None
