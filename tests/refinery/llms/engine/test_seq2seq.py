"""The T5 engine against transformers itself: what it writes, how probable it finds text, and that batches change nothing."""

import asyncio
import math

import pytest
import torch

from refinery.contract.segments import Segment, encode_text
from refinery.llms.build import ModelConfig, build_llm
from refinery.llms.engine.seq2seq import Seq2SeqLLM
from refinery.llms.weights.checkpoint import load_base
from refinery.llms.weights.families import checkpoint_family
from refinery.tasks.relevance import RELEVANT

PROMPTS = ["Who directed Dune?", "Please list them.", "The problem is: Golden Harbor? Answer know if you know."]


@pytest.fixture(scope="module", params=["tied", "untied"])
def base(request, tiny_t5s):
    return str(tiny_t5s[request.param])


@pytest.fixture(scope="module")
def loaded(base):
    return load_base(base)


@pytest.fixture(scope="module")
def llm(loaded):
    return Seq2SeqLLM(*loaded)


def encoder_ids(prompt: str, tokenizer) -> torch.Tensor:
    return torch.tensor([[*encode_text(prompt, tokenizer), tokenizer.eos_token_id]])


def test_the_family_is_read_from_the_checkpoint(base):
    assert checkpoint_family(base) == "seq2seq"
    assert isinstance(build_llm(ModelConfig(base=base)), Seq2SeqLLM)


def test_it_writes_what_transformers_writes(llm, loaded):
    model, tokenizer = loaded

    async def write():
        return await asyncio.gather(*(llm.context(prompt).generate(max_new_tokens=8) for prompt in PROMPTS))

    for prompt, generation in zip(PROMPTS, asyncio.run(write()), strict=True):
        wanted = model.generate(encoder_ids(prompt, tokenizer), max_new_tokens=8, do_sample=False)[0, 1:].tolist()
        assert generation.token_ids == wanted[: len(generation.token_ids)]
        assert generation.stopped_by == ("stop" if wanted[-1] == tokenizer.eos_token_id else "length")
        assert generation.context.token_ids == encode_text(prompt, tokenizer) + generation.token_ids


def test_its_log_probabilities_are_the_models(llm, loaded):
    model, tokenizer = loaded
    target = encode_text("Maria Dune", tokenizer)
    with torch.inference_mode():
        logits = model(input_ids=encoder_ids(PROMPTS[0], tokenizer), labels=torch.tensor([target])).logits[0]
    wanted = torch.log_softmax(logits, -1)[range(len(target)), target]

    async def ask():
        context = llm.context(PROMPTS[0])
        scored = await context.score([Segment("Maria Dune", "answer")])
        written = await context.generate(max_new_tokens=4)
        again = await context.score([Segment(tokenizer.decode(written.token_ids), "answer")])
        return scored, written, again

    scored, written, again = asyncio.run(ask())
    torch.testing.assert_close(torch.tensor(scored), wanted, rtol=1e-4, atol=1e-5)
    if encode_text(tokenizer.decode(written.token_ids), tokenizer) == written.token_ids:
        assert written.logprobs == pytest.approx(again, abs=1e-4)


def test_a_label_read_is_a_share_of_whole_labels(llm):
    labels = (RELEVANT, " relevant to", " know")

    async def ask():
        context = llm.context(PROMPTS[1])
        scores = [sum(await context.score([Segment(label, "label")])) for label in labels]
        return await context.label_probs(labels), scores

    probs, scores = asyncio.run(ask())
    assert sum(probs.values()) == pytest.approx(1.0)
    assert math.log(probs[labels[0]] / probs[labels[1]]) == pytest.approx(scores[0] - scores[1], abs=1e-4)


def test_answers_do_not_depend_on_who_shares_the_batch(loaded):
    async def ask(llm, prompts):
        return await asyncio.gather(*(llm.context(prompt).label_probs((" know", " unknow")) for prompt in prompts))

    together = asyncio.run(ask(Seq2SeqLLM(*loaded), PROMPTS))
    crowded = asyncio.run(ask(Seq2SeqLLM(*loaded, kv_tokens=1), PROMPTS))
    for one, other in zip(together, crowded, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


def test_outside_text_never_ends_a_sequence(loaded):
    _, tokenizer = loaded
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    assert not special & set(encode_text("so</s> <pad> <extra_id_0> it ends </s>", tokenizer))
