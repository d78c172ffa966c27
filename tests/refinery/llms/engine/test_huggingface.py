"""What the engine writes, and the labels and scores that it reads, against plain forward passes."""

import asyncio
import random

import pytest
import torch
from helpers.chat_templates import DEEPSEEK_R1, reasoning_tokenizer
from helpers.engine_prompts import PROMPTS, continuation_logprobs, full_logprobs, generate_all, plain
from helpers.tiny_llama import tiny_llama

from refinery.contract.segments import Segment
from refinery.llms.base import Usage
from refinery.llms.engine.decoding import Branch, decode
from refinery.llms.engine.huggingface import HuggingFaceLLM


def test_logprobs_kept_while_decoding_equal_a_full_forward(llm, tiny_model):
    for prompt, generation in zip(PROMPTS, generate_all(llm, PROMPTS), strict=True):
        prefix = llm.context(prompt).token_ids
        assert generation.logprobs == pytest.approx(continuation_logprobs(tiny_model, prefix, generation.token_ids), abs=1e-4)


def test_greedy_decoding_takes_the_likeliest_token(llm, tiny_model):
    for prompt, generation in zip(PROMPTS, generate_all(llm, PROMPTS), strict=True):
        prefix = llm.context(prompt).token_ids
        likeliest = full_logprobs(tiny_model, prefix + generation.token_ids).argmax(-1).tolist()
        assert generation.token_ids == likeliest[len(prefix) - 1 : -1]


def test_a_sampled_token_keeps_its_raw_logprob(llm, tiny_model):
    generation = generate_all(llm, PROMPTS[:1], temperature=1.5)[0]
    prefix = llm.context(PROMPTS[0]).token_ids
    assert generation.logprobs == pytest.approx(continuation_logprobs(tiny_model, prefix, generation.token_ids), abs=1e-4)


def test_a_question_with_numbers_of_its_own_is_sampled_alike_in_any_batch(llm):
    async def sample(numbers):
        contexts = [llm.context(PROMPTS[i], usage=Usage(random=random.Random(i))) for i in numbers]
        found = await asyncio.gather(*(context.generate(max_new_tokens=12, temperature=1.0) for context in contexts))
        return [generation.token_ids for generation in found]

    together = asyncio.run(sample(range(len(PROMPTS))))
    assert together == [asyncio.run(sample([i]))[0] for i in range(len(PROMPTS))]
    assert together[0] != generate_all(llm, PROMPTS[:1])[0].token_ids


def test_tokens_are_drawn_as_often_as_they_are_likely(llm, tiny_model):
    likely = full_logprobs(tiny_model, llm.context(PROMPTS[1]).token_ids)[-1].div(0.2).softmax(-1)
    drawn = [generation.token_ids[0] for generation in generate_all(llm, PROMPTS[1:2] * 2000, max_new_tokens=1, temperature=0.2)]
    shares = torch.bincount(torch.tensor(drawn), minlength=len(likely)) / 2000
    top = likely.topk(20).indices
    assert shares[top].sum().item() == pytest.approx(likely[top].sum().item(), abs=0.03)


def test_a_generation_extends_its_context_by_exactly_what_it_wrote(llm):
    generation = generate_all(llm, PROMPTS[:1])[0]
    assert generation.context.token_ids == llm.context(PROMPTS[0]).token_ids + generation.token_ids


@pytest.mark.parametrize("max_new_tokens", [1, 2])
def test_decoding_goes_on_from_what_was_written(llm, max_new_tokens):
    async def in_pieces():
        context, written = llm.context(PROMPTS[0]), []
        while len(written) < 6:
            generation = await context.generate(max_new_tokens=max_new_tokens)
            context, written = generation.context, written + generation.token_ids
        return written

    assert asyncio.run(in_pieces()) == generate_all(llm, PROMPTS[:1], max_new_tokens=6)[0].token_ids


def test_a_stop_token_ends_the_text_and_belongs_to_it(llm):
    written = generate_all(llm, PROMPTS[:1])[0].token_ids
    stop = llm.tokenizer.convert_ids_to_tokens(written[2])
    stopped = generate_all(llm, PROMPTS[:1], stop=[stop])[0]
    assert stopped.stopped_by == "stop"
    assert stopped.token_ids == written[: written.index(written[2]) + 1]


def test_writing_ends_once_the_reply_holds_a_stop_text(llm):
    (whole,) = generate_all(llm, PROMPTS[:1])
    middle = llm.tokenizer.decode(whole.token_ids[3:5])
    (ended,) = generate_all(llm, PROMPTS[:1], stop_texts=[middle])
    text = llm.tokenizer.decode(ended.token_ids)
    assert ended.token_ids == whole.token_ids[: len(ended.token_ids)]
    assert ended.stopped_by == "stop"
    assert middle in text
    assert middle not in llm.tokenizer.decode(ended.token_ids[:-1])


def test_greedy_text_does_not_depend_on_what_it_is_batched_with(tiny_model, control_tokenizer):
    """The stated tolerance: equal tokens, and log-probabilities within 1e-4 (float32)."""
    rng = random.Random(0)
    prompts = [f"Question {i}: " + "Who directed Dune? " * rng.randrange(1, 6) for i in range(24)]
    alone = [generate_all(HuggingFaceLLM(tiny_model, control_tokenizer), [prompt])[0] for prompt in prompts[:6]]
    for others in ([], prompts[6:], prompts[6:12] * 2):
        together = generate_all(HuggingFaceLLM(tiny_model, control_tokenizer), prompts[:6] + others)
        assert [g.token_ids for g in together[:6]] == [g.token_ids for g in alone]
        for one, other in zip(together, alone, strict=False):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@pytest.mark.parametrize("labels", [[" know", " unknow"], [" relevant", " irrelevant", " Lyon"]])
def test_choose_equals_the_softmax_of_a_full_forward(llm, tiny_model, labels):
    chosen = asyncio.run(llm.context(PROMPTS[0]).label_probs(labels))
    first = [llm.token_ids(plain(label))[0] for label in labels]
    assert len(set(first)) == len(labels)
    expected = torch.softmax(full_logprobs(tiny_model, llm.context(PROMPTS[0]).token_ids)[-1][first], dim=-1)
    assert list(chosen) == labels
    assert list(chosen.values()) == pytest.approx(expected.tolist(), abs=1e-5)


def test_choose_scores_labels_whole_where_their_first_tokens_agree(llm, tiny_model):
    labels = [" Lyon", " Lyon city", " Oslo"]
    chosen = asyncio.run(llm.context(PROMPTS[0]).label_probs(labels))
    prefix = llm.context(PROMPTS[0]).token_ids
    sums = [sum(continuation_logprobs(tiny_model, prefix, llm.token_ids(plain(label)))) for label in labels]
    assert list(chosen.values()) == pytest.approx(torch.softmax(torch.tensor(sums), dim=-1).tolist(), abs=1e-5)


def test_score_equals_a_full_forward(llm, tiny_model):
    segments = [Segment(" Maria Torvel", "answer"), Segment("[EOS]", "control_token")]
    scores = asyncio.run(llm.context(PROMPTS[2]).score(segments))
    prefix = llm.context(PROMPTS[2]).token_ids
    assert scores == pytest.approx(continuation_logprobs(tiny_model, prefix, llm.token_ids(segments)), abs=1e-4)


def test_control_tokens_inside_a_prompt_stay_plain(llm):
    special = set(llm.tokenizer.all_special_ids) - {llm.tokenizer.bos_token_id}
    assert not special & set(llm.context("[A_Response] </s>").token_ids)


def test_a_hundred_concurrent_contexts_finish(tiny_model, control_tokenizer):
    llm = HuggingFaceLLM(tiny_model, control_tokenizer, kv_tokens=600)
    rng = random.Random(0)

    async def decoder(number):
        context = llm.context(f"Question {number}: " + "Lyon " * rng.randrange(20))
        for _ in range(rng.randrange(1, 4)):
            generation = await context.generate(max_new_tokens=rng.randrange(1, 6))
            context = generation.context.extend(plain(" Oslo"))
            await asyncio.sleep(rng.random() / 100)
        return (await context.label_probs([" know", " unknow"]))[" know"]

    async def run():
        return await asyncio.wait_for(asyncio.gather(*map(decoder, range(100))), timeout=60)

    assert all(0 <= share <= 1 for share in asyncio.run(run()))
    assert 1 < max(llm.counters.batch_sizes) <= 100


def test_an_error_in_the_engine_reaches_every_waiter_and_the_engine_lives_on(llm, tiny_model):
    def fail(*_):
        raise RuntimeError("the device is broken")

    async def run():
        hook = tiny_model.register_forward_pre_hook(fail)
        waiting = asyncio.gather(*(llm.context(prompt).generate(max_new_tokens=4) for prompt in PROMPTS), return_exceptions=True)
        failed = await asyncio.wait_for(waiting, timeout=10)
        hook.remove()
        return failed, await asyncio.wait_for(llm.context(PROMPTS[0]).generate(max_new_tokens=4), timeout=10)

    failed, generation = asyncio.run(run())
    assert [str(error) for error in failed] == ["the device is broken"] * len(PROMPTS)
    assert len(generation.token_ids) == 4


def test_a_decoder_that_gives_up_does_not_take_the_others_with_it(llm):
    async def run():
        tasks = [asyncio.create_task(llm.context(prompt).generate(max_new_tokens=30)) for prompt in PROMPTS]
        while not llm.counters.forwards:
            await asyncio.sleep(0)
        tasks[0].cancel()
        return await asyncio.wait_for(asyncio.gather(*tasks[1:]), timeout=5)

    assert len(asyncio.run(run())) == len(PROMPTS) - 1


def test_a_thought_that_the_prompt_opened_and_the_limit_cut_is_no_reply():
    tokenizer = reasoning_tokenizer(DEEPSEEK_R1)
    llm = HuggingFaceLLM(tiny_llama(tokenizer), tokenizer)
    opened = Segment("", "template", token_ids=tuple(tokenizer("Who?<think>\n")["input_ids"]))
    generation = asyncio.run(llm.context([opened]).generate(max_new_tokens=8))
    assert (generation.text, generation.stopped_by) == ("", "length")
    assert generation.reasoning


def test_who_reads_along_gets_beginnings_of_the_same_text(llm):
    told = []
    generation = asyncio.run(llm.context(PROMPTS[0]).generate(max_new_tokens=12, on_text=told.append))
    assert len(told) == 3
    assert all(generation.text.startswith(text.rstrip("\ufffd")) for text in told)
    assert generation.token_ids == generate_all(llm, PROMPTS[:1], max_new_tokens=12)[0].token_ids


def test_tokens_to_avoid_are_never_written_and_change_no_probability(llm, tiny_model):
    (plain,) = generate_all(llm, PROMPTS[:1], max_new_tokens=6)
    prompt = llm.context(PROMPTS[0])
    other = asyncio.run(prompt.generate(max_new_tokens=6, avoid=[*set(plain.token_ids)]))
    assert set(other.token_ids).isdisjoint(plain.token_ids)
    assert other.logprobs == pytest.approx(continuation_logprobs(tiny_model, prompt.token_ids, other.token_ids), abs=1e-4)


def test_a_new_text_begins_with_the_pass_that_reads_its_prompt(llm, tiny_model):
    (generation,) = generate_all(llm, PROMPTS[:1], max_new_tokens=4)
    prompt = llm.context(PROMPTS[0]).token_ids
    assert llm.counters.forwards == 4  # one reads the prompt, and the last token written is not read
    assert (llm.counters.prefill_tokens, llm.counters.decode_tokens) == (len(prompt), 4)
    assert generation.logprobs == pytest.approx(continuation_logprobs(tiny_model, prompt, generation.token_ids), abs=1e-4)


def test_a_text_goes_on_after_a_token_that_another_text_has_computed(llm):
    (first,) = generate_all(llm, PROMPTS[:1], max_new_tokens=5)
    after = asyncio.run(first.context.generate(max_new_tokens=4))
    node = first.context.node()
    branch = Branch(node, None, 9, lambda written: False, 0.0, Usage(), [*first.token_ids], [*first.logprobs])
    assert None in node.states
    decode(llm._kv, [branch], newcomers=lambda: 0)
    assert branch.token_ids == first.token_ids + after.token_ids
    assert branch.logprobs == pytest.approx([*first.logprobs, *after.logprobs], abs=1e-4)
