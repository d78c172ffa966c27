"""How often the engine waits for its device, and how many kernels it launches: neither may grow with the contexts in a batch."""

import asyncio

import pytest
from helpers.device_waits import DeviceCounts, counting_device_work
from helpers.engine_prompts import PROMPTS, plain

from refinery.llms.engine.huggingface import HuggingFaceLLM


@pytest.fixture
def counted(monkeypatch):
    """Run a coroutine function over an engine, and return the counts of each of its micro-batches."""

    def run(llm, ask):
        batches: list[DeviceCounts] = []
        serve = llm._serve

        def counting(waiting):
            with counting_device_work() as counts:
                batches.append(counts)
                return serve(waiting)

        monkeypatch.setattr(llm, "_serve", counting)
        asyncio.run(ask(llm))
        return batches

    return run


def writing(count, tokens):
    async def ask(llm):
        contexts = [llm.context(f"Question {i}: {PROMPTS[i % 4]}") for i in range(count)]
        await asyncio.gather(*(context.generate(max_new_tokens=tokens) for context in contexts))
        again = [context.extend(plain(" Lyon")) for context in contexts]
        await asyncio.gather(*(context.generate(max_new_tokens=tokens) for context in again))

    return ask


def test_a_step_of_decoding_waits_once(counted, tiny_model, control_tokenizer):
    llm = HuggingFaceLLM(tiny_model, control_tokenizer)
    counts = counted(llm, writing(6, 5))
    decoding = sum(batch.waits.pop("tolist") for batch in counts)
    # The first tokens of new texts follow from the pass that reads their prompts.
    prefilling = llm.counters.forwards - (decoding - 1)
    assert decoding == 10
    # transformers looks at the mask of a pass over prefixes: once, and a second time where no beginning is padded.
    assert sum(batch.waits.total() for batch in counts) <= 2 * prefilling


def test_launches_do_not_grow_with_the_contexts_of_a_batch(counted, tiny_model, control_tokenizer):
    # Of the last batch: the first computes beginnings that only some of its prompts share one after the other.
    few, many = (counted(HuggingFaceLLM(tiny_model, control_tokenizer), writing(count, 4))[-1] for count in (8, 24))
    assert few.launches.total() == many.launches.total()


def test_a_batch_is_gathered_and_stored_by_as_many_copies_as_there_are_shapes(counted, tiny_model, control_tokenizer):
    batches = counted(HuggingFaceLLM(tiny_model, control_tokenizer), writing(8, 4))
    gathered = batches[-1].launches["index_select"]
    layers = tiny_model.config.num_hidden_layers
    # For the prefixes and for decoding: all layers' keys and values together, and what is stored of them with their hidden states.
    assert gathered <= 6 < 2 * layers * 8


def test_scores_are_read_by_one_wait(counted, tiny_model, control_tokenizer):
    async def ask(llm):
        await asyncio.gather(*(llm.context(prompt).score(plain(" Maria Torvel " * 30)) for prompt in PROMPTS))

    (counts,) = counted(HuggingFaceLLM(tiny_model, control_tokenizer), ask)
    assert counts.waits["tolist"] == 1
