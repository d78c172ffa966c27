"""Several adapters of one model in one batch."""

import asyncio

import pytest
from helpers.engine_prompts import PROMPTS, continuation_logprobs

from refinery.llms.engine.huggingface import HuggingFaceLLM


@pytest.fixture
def adapted_model(tiny_model):
    """The tiny model with two random LoRA adapters, `left` and `right`."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    model = get_peft_model(tiny_model, config, adapter_name="left")
    model.add_adapter("right", config)
    return model.eval()


def test_adapters_mixed_in_one_batch_equal_each_alone(adapted_model, control_tokenizer):
    wanted = [(prompt, adapter) for prompt in PROMPTS for adapter in ("left", None, "right")]

    async def ask(llm, prompt, adapter):
        generation = await llm.context(prompt).generate(max_new_tokens=8, adapter=adapter)
        return generation.token_ids, generation.logprobs

    async def together(llm):
        return await asyncio.gather(*(ask(llm, *pair) for pair in wanted))

    llm = HuggingFaceLLM(adapted_model, control_tokenizer, adapters=["left", "right"])
    mixed = asyncio.run(together(llm))
    assert max(llm.counters.batch_sizes) == len(wanted)
    for (prompt, adapter), (token_ids, logprobs) in zip(wanted, mixed, strict=True):
        prefix = llm.context(prompt).token_ids
        if adapter is None:
            with adapted_model.disable_adapter():
                alone = continuation_logprobs(adapted_model, prefix, token_ids)
        else:
            adapted_model.set_adapter(adapter)
            alone = continuation_logprobs(adapted_model, prefix, token_ids)
        assert logprobs == pytest.approx(alone, abs=1e-4)
    assert len({tuple(token_ids) for token_ids, _ in mixed[:3]}) == 3


def test_one_context_is_computed_once_per_adapter(adapted_model, control_tokenizer):
    llm = HuggingFaceLLM(adapted_model, control_tokenizer, adapters=["left", "right"])

    async def run():
        context = llm.context(PROMPTS[0])
        labels = [" know", " unknow"]
        return await asyncio.gather(*(context.label_probs(labels, adapter=adapter) for adapter in ("left", "right", None, "left")))

    left, right, base, again = asyncio.run(run())
    assert left == again
    assert left != right != base
    assert llm.counters.prefill_tokens == 3 * len(llm.context(PROMPTS[0]).token_ids)
