"""Engines on a device whose memory does not suffice: smaller batches give what large ones give, and only what never fits is lost."""

import asyncio

import pytest
import torch
from helpers.tiny_llama import tiny_llama

from refinery.errors import LLMError
from refinery.llms.build import llm_over
from refinery.llms.engine.huggingface import HuggingFaceLLM
from refinery.llms.engine.out_of_memory import in_halves
from refinery.llms.weights.checkpoint import load_base
from refinery.tasks.self_knowledge import KNOW, UNKNOW, knowledge_prompt

PROMPTS = [f"Question: Who directed film {number}?\nAnswer:" for number in range(8)]


class SmallDevice:
    """Runs out of memory for a forward pass of more than `most_rows` rows, and for one over more than `most_keys` tokens."""

    def __init__(self, model, *, most_rows=1_000, most_keys=1_000_000):
        self.most_rows, self.most_keys, self.failures = most_rows, most_keys, 0
        model.register_forward_pre_hook(self._check, with_kwargs=True)

    def _check(self, model, arguments, values):
        if "attention_mask" not in values:
            return  # only the head is computed
        if values["input_ids"].shape[0] > self.most_rows or values["attention_mask"].shape[-1] > self.most_keys:
            self.failures += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def answers(llm, prompts):
    async def run():
        asked = (llm.context(prompt).generate(max_new_tokens=12) for prompt in prompts)
        return await asyncio.gather(*asked, return_exceptions=True)

    return [answer if isinstance(answer, Exception) else answer.token_ids for answer in asyncio.run(run())]


@pytest.fixture
def model(control_tokenizer):
    torch.manual_seed(0)
    return tiny_llama(control_tokenizer, max_position_embeddings=512, initializer_range=0.4)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        torch.AcceleratorError("CUDA error: out of memory", 2),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)"),
    ],
)
def test_memory_that_runs_out_is_known_by_every_name(error):
    def run(items):
        if len(items) > 1:
            raise error
        return [item * 2 for item in items]

    assert in_halves(run, [1, 2, 3]) == [2, 4, 6]


def test_another_error_is_not_taken_for_one_of_memory():
    def run(items):
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        in_halves(run, [1, 2])


@pytest.mark.parametrize("most_rows", [1, 3])
def test_a_batch_too_large_for_the_device_is_served_in_smaller_ones(model, control_tokenizer, most_rows):
    expected = answers(HuggingFaceLLM(model, control_tokenizer), PROMPTS)
    llm = HuggingFaceLLM(model, control_tokenizer)
    device = SmallDevice(model, most_rows=most_rows)
    assert answers(llm, PROMPTS) == expected
    assert device.failures


def test_memory_that_ends_in_the_middle_of_a_text_repeats_nothing_of_it(model, control_tokenizer):
    expected = answers(HuggingFaceLLM(model, control_tokenizer), PROMPTS)
    llm = HuggingFaceLLM(model, control_tokenizer)
    steps = iter([None] * 5)

    def fail_later(model, arguments, values):
        if values["input_ids"].shape[0] > 4 and values["input_ids"].shape[1] == 1 and next(steps, "over") == "over":
            raise torch.OutOfMemoryError("CUDA out of memory.")

    model.register_forward_pre_hook(fail_later, with_kwargs=True)
    assert answers(llm, PROMPTS) == expected
    assert llm.counters.decode_tokens == sum(map(len, expected))


def test_only_the_context_that_never_fits_is_lost(model, control_tokenizer):
    long = "word " * 150
    expected = answers(HuggingFaceLLM(model, control_tokenizer), PROMPTS)
    llm = HuggingFaceLLM(model, control_tokenizer)
    SmallDevice(model, most_keys=120)
    *short, lost = answers(llm, [*PROMPTS, long])
    assert short == expected
    assert isinstance(lost, LLMError)
    assert "no memory left for this sequence alone" in str(lost)


@pytest.mark.parametrize("family", ["seq2seq", "classifier"])
def test_other_families_give_way_too(tiny_t5s, tiny_encoder, family):
    if family == "seq2seq":
        loaded, labels = load_base(str(tiny_t5s["tied"])), ("Lyon", "1984")
    else:
        loaded, labels = load_base(str(tiny_encoder), family="classifier", labels=("know", "unknow")), (KNOW, UNKNOW)
    prompts = [knowledge_prompt(f"Who directed {'the film ' * number}?") for number in range(6)]

    def read(llm):
        async def run():
            return await asyncio.gather(*(llm.context(prompt).label_probs(labels) for prompt in prompts))

        return [pytest.approx(probs, abs=1e-5) for probs in asyncio.run(run())]

    expected = read(llm_over(*loaded, family))
    model = loaded[0].get_encoder() if family == "seq2seq" else loaded[0]
    device = SmallDevice(model, most_rows=2)
    assert [probs.expected for probs in read(llm_over(*loaded, family))] == expected
    assert device.failures


def test_of_a_batch_that_never_fits_only_the_long_request_is_lost(tiny_encoder):
    model, tokenizer = load_base(str(tiny_encoder), family="classifier", labels=("know", "unknow"))
    SmallDevice(model, most_keys=60)
    llm = llm_over(model, tokenizer, "classifier")
    prompts = [knowledge_prompt(f"Who directed {'the film ' * length}?") for length in (1, 60, 2)]

    async def run():
        asked = (llm.context(prompt).label_probs((KNOW, UNKNOW)) for prompt in prompts)
        return await asyncio.gather(*asked, return_exceptions=True)

    assert [isinstance(found, LLMError) for found in asyncio.run(run())] == [False, True, False]
