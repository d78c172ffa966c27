"""Steps padded to few shapes, as CUDA graphs need them, on a CPU: they write what steps in their own shapes write."""

import asyncio
from collections import Counter

import pytest
from helpers.engine_prompts import PROMPTS, plain
from helpers.tiny_llama import tiny_llama
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from refinery.llms.engine import decoding
from refinery.llms.engine.huggingface import HuggingFaceLLM
from refinery.llms.engine.static_step import StepShape


def gemma(tokenizer):
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    kinds = {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6}
    return Gemma3ForCausalLM(Gemma3TextConfig(vocab_size=len(tokenizer), initializer_range=0.4, **shape, **kinds)).eval()


def llama(tokenizer):
    return tiny_llama(tokenizer, num_attention_heads=4, num_key_value_heads=1, initializer_range=0.4)


@pytest.fixture(params=[llama, gemma])
def model(request, control_tokenizer):
    return request.param(control_tokenizer)


def trees(llm, *, temperature=0.0):
    """Texts after three prompts, each with three continuations side by side, and continuations of those."""

    async def tree(prompt):
        contexts = [llm.context(prompt).extend(plain(text)) for text in (" Lyon", " Oslo", " Maria Torvel")]
        first = await asyncio.gather(*(context.generate(max_new_tokens=9, temperature=temperature) for context in contexts))
        again = [text.context.extend(plain(" and")) for text in first]
        return [*first, *await asyncio.gather(*(context.generate(max_new_tokens=5, temperature=temperature) for context in again))]

    async def run():
        return await asyncio.gather(*map(tree, PROMPTS[:3]))

    return [text for texts in asyncio.run(run()) for text in texts]


def assert_same(found, expected):
    assert [text.token_ids for text in found] == [text.token_ids for text in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_padded_steps_write_what_others_write(model, control_tokenizer, temperature):
    expected = trees(HuggingFaceLLM(model, control_tokenizer, seed=1), temperature=temperature)
    llm = HuggingFaceLLM(model, control_tokenizer, static_shapes=True, seed=1)
    assert_same(trees(llm, temperature=temperature), expected)
    assert 0 < len(llm._kv.static._steps) <= 3


def test_a_step_computed_ahead_of_the_last_one_is_not_part_of_the_text(model, control_tokenizer, monkeypatch):
    expected = trees(HuggingFaceLLM(model, control_tokenizer))
    begin = decoding._DecodeBatch.__init__

    def ahead(batch, *arguments):
        begin(batch, *arguments)
        batch.ahead = 1

    monkeypatch.setattr(decoding._DecodeBatch, "__init__", ahead)
    llm = HuggingFaceLLM(model, control_tokenizer, static_shapes=True)
    assert_same(trees(llm), expected)
    assert llm.counters.decode_tokens == sum(len(text.token_ids) for text in expected)


def test_batches_of_similar_sizes_share_a_shape():
    sizes = [(rows, width, prefix) for rows in range(1, 65) for width in (3, 4) for prefix in range(500, 700, 7)]
    shapes = Counter(StepShape.around(rows=rows, width=width, prefix=prefix, steps=30) for rows, width, prefix in sizes)
    assert len(shapes) == 24  # 12 numbers of rows, 768 or 1,024 keys
    for (rows, width, prefix), shape in ((size, StepShape.around(rows=size[0], width=size[1], prefix=size[2], steps=30)) for size in sizes):
        assert rows <= shape.rows < 2 * rows
        assert width <= shape.width
        assert prefix + shape.width * 30 <= shape.keys


def test_a_batch_that_has_no_room_for_padding_runs_in_its_own_shape(control_tokenizer):
    model = llama(control_tokenizer)
    expected = trees(HuggingFaceLLM(model, control_tokenizer, kv_tokens=500))
    llm = HuggingFaceLLM(model, control_tokenizer, kv_tokens=500, static_shapes=True)
    assert_same(trees(llm), expected)
    assert llm.peak_kv_tokens <= 500


def test_memory_of_padded_steps_is_freed_with_the_states(control_tokenizer):
    llm = HuggingFaceLLM(llama(control_tokenizer), control_tokenizer, static_shapes=True)
    trees(llm)
    assert llm._kv.static._space
    llm._kv.clear()
    assert not llm._kv.static._space
    assert trees(llm)
