import asyncio
import gc
import random

import pytest
import torch
from helpers.tiny_llama import tiny_llama

from refinery.contract.segments import Segment
from refinery.errors import LLMError
from refinery.llms.base import Usage
from refinery.llms.engine.huggingface import HuggingFaceLLM
from refinery.llms.engine.prefix_tree import NodeState

PROMPTS = [
    "Question: Who directed Dune?",
    "Lyon",
    "Question: In which city was the director of the film Dune born?\nAnswer:",
    "1984 ",
]


def full_logprobs(model, token_ids: list[int]) -> torch.Tensor:
    """Log-probabilities (tokens, vocab) of what follows each token, in one plain forward pass."""
    with torch.inference_mode():
        return torch.log_softmax(model(input_ids=torch.tensor([token_ids])).logits[0].float(), dim=-1)


def continuation_logprobs(model, prefix: list[int], continuation: list[int]) -> list[float]:
    logprobs = full_logprobs(model, prefix + continuation)[len(prefix) - 1 : -1]
    return logprobs.gather(-1, torch.tensor(continuation)[:, None])[:, 0].tolist()


def generate_all(llm, prompts, *, max_new_tokens=12, **arguments):
    async def run():
        contexts = [llm.context(prompt) for prompt in prompts]
        return await asyncio.gather(*(context.generate(max_new_tokens=max_new_tokens, **arguments) for context in contexts))

    return asyncio.run(run())


def plain(text: str) -> list[Segment]:
    return [Segment(text, "prompt")]


@pytest.fixture
def llm(tiny_model, control_tokenizer):
    return HuggingFaceLLM(tiny_model, control_tokenizer)


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


def test_a_small_budget_gives_the_same_answers(tiny_model, control_tokenizer, llm):
    narrow = HuggingFaceLLM(tiny_model, control_tokenizer, kv_tokens=100)
    wide_answers, narrow_answers = generate_all(llm, PROMPTS), generate_all(narrow, PROMPTS)
    assert max(llm.counters.batch_sizes) == len(PROMPTS) > max(narrow.counters.batch_sizes)
    assert narrow.peak_kv_tokens <= 100
    assert [a.token_ids for a in narrow_answers] == [a.token_ids for a in wide_answers]
    for one, other in zip(narrow_answers, wide_answers, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


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


@pytest.mark.parametrize(
    ("kv_tokens", "message"),
    [(40, "kv_tokens: 40 cannot hold one sequence of "), (65_536, "tokens and 600 to write exceed the model's 512 positions.")],
)
def test_a_sequence_that_cannot_be_held_is_refused_before_anything_runs(tiny_model, control_tokenizer, kv_tokens, message):
    llm = HuggingFaceLLM(tiny_model, control_tokenizer, kv_tokens=kv_tokens)
    with pytest.raises(LLMError, match=message):
        generate_all(llm, PROMPTS[:1], max_new_tokens=600 if kv_tokens > 600 else 30)
    assert llm.counters.forwards == 0


class KvMeter:
    """Counts, before every tenth forward pass, the tokens of the engine's keys and values that are alive: kept ones and the batch's."""

    def __init__(self, llm, model):
        self.peak = self.passes = 0
        self.ledger = llm._kv.tree.ledger
        model.register_forward_pre_hook(self._measure, with_kwargs=True)

    def _measure(self, module, arguments, keywords):
        self.passes += 1
        if self.passes % 10:
            return
        kept = [item for item in gc.get_objects() if isinstance(item, NodeState) and item._ledger is self.ledger]
        buffers = {id(b): b for b in keywords["past_key_values"].layers[0]._buffers}
        batch = [b.shape[0] * b.shape[2] for b in buffers.values()][:1] or [keywords["input_ids"].numel()]
        self.peak = max(self.peak, sum(state.layers[0][0].shape[1] for state in kept) + batch[0])


def test_a_thousand_decoders_stay_within_the_budget(tiny_model, control_tokenizer):
    decoders, budget = 1000, 20_000
    llm = HuggingFaceLLM(tiny_model, control_tokenizer, kv_tokens=budget)
    meter = KvMeter(llm, tiny_model)

    async def decoder(number):
        context = llm.context(f"Question {number}: Who directed Dune?")
        first = await context.generate(max_new_tokens=3)
        branches = [first.context.extend(plain(text)) for text in (" Lyon", " Oslo")]
        return await asyncio.gather(*(branch.generate(max_new_tokens=2) for branch in branches))

    async def run():
        return await asyncio.gather(*map(decoder, range(decoders)))

    assert len(asyncio.run(run())) == decoders
    assert budget / 2 < meter.peak <= llm.peak_kv_tokens <= budget


def test_what_was_evicted_is_computed_again(tiny_model, control_tokenizer, llm):
    async def ask(engine):
        contexts = [engine.context(f"Question {number}: Who directed Dune? " * 3) for number in range(6)]
        first = await asyncio.gather(*(context.generate(max_new_tokens=2) for context in contexts))
        again = await asyncio.gather(*(g.context.extend(plain(" Lyon")).generate(max_new_tokens=4) for g in first))
        return [g.token_ids for g in again]

    small = HuggingFaceLLM(tiny_model, control_tokenizer, kv_tokens=130)
    assert asyncio.run(ask(small)) == asyncio.run(ask(llm))
    assert small.counters.prefill_tokens > llm.counters.prefill_tokens
    assert small.peak_kv_tokens <= 130 < llm.peak_kv_tokens


def test_fresh_contexts_share_the_beginning_of_their_prompts(llm):
    opening = "Using the knowledge from the relevant paragraphs, give the answer to the question. Question: Who directed Dune?"

    async def run():
        return await asyncio.gather(*(llm.context(opening + end).label_probs([" know", " unknow"]) for end in (" one", " two", " three")))

    asyncio.run(run())
    whole = [llm.context(opening + end).token_ids for end in (" one", " two", " three")]
    shared = next(i for i, tokens in enumerate(zip(*whole, strict=False)) if len(set(tokens)) > 1)
    assert llm.counters.prefill_tokens == shared + sum(len(ids) - shared for ids in whole)


def test_key_heads_that_query_heads_share_change_nothing(control_tokenizer):
    model = tiny_llama(control_tokenizer, num_attention_heads=4, num_key_value_heads=1, initializer_range=0.4)
    llm = HuggingFaceLLM(model, control_tokenizer)

    async def run():
        parent = llm.context(PROMPTS[2])
        children = [parent.extend([Segment(token, "control_token")]) for token in ("[A_Response]", "[S_Rewritten_Query]", "[EOS]")]
        return children, await asyncio.gather(*(child.generate(max_new_tokens=5) for child in children))

    children, generations = asyncio.run(run())
    assert max(llm.counters.batch_sizes) == 1  # the three stand side by side in one row
    for child, generation in zip(children, generations, strict=True):
        assert generation.logprobs == pytest.approx(continuation_logprobs(model, child.token_ids, generation.token_ids), abs=1e-4)


def test_siblings_share_their_parents_tokens(llm):
    async def run():
        parent = llm.context("Question: Who directed Dune?", usage=usage)
        children = [parent.extend(plain(text)) for text in (" Maria", " Maria Torvel, who else", " Maria")]
        await asyncio.gather(*(child.generate(max_new_tokens=1) for child in children))
        return len(parent.token_ids), [len(child.token_ids) for child in children]

    usage = Usage()
    parent, children = asyncio.run(run())
    assert llm.counters.prefill_tokens == parent + (children[0] - parent) + (children[1] - parent)
    assert usage.prefill_tokens == llm.counters.prefill_tokens


def test_what_was_decoded_is_not_computed_again(llm):
    async def run():
        generation = await llm.context(PROMPTS[0]).generate(max_new_tokens=6)
        before = llm.counters.prefill_tokens
        await generation.context.extend(plain(" Lyon")).generate(max_new_tokens=1)
        return llm.counters.prefill_tokens - before

    # The last token written was never fed to the model; all before it were.
    assert asyncio.run(run()) == 1 + len(llm.token_ids(plain(" Lyon")))


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
        raise RuntimeError("out of memory")

    async def run():
        hook = tiny_model.register_forward_pre_hook(fail)
        waiting = asyncio.gather(*(llm.context(prompt).generate(max_new_tokens=4) for prompt in PROMPTS), return_exceptions=True)
        failed = await asyncio.wait_for(waiting, timeout=10)
        hook.remove()
        return failed, await asyncio.wait_for(llm.context(PROMPTS[0]).generate(max_new_tokens=4), timeout=10)

    failed, generation = asyncio.run(run())
    assert [str(error) for error in failed] == ["out of memory"] * len(PROMPTS)
    assert len(generation.token_ids) == 4


def test_a_decoder_that_gives_up_does_not_take_the_others_with_it(llm):
    async def run():
        tasks = [asyncio.create_task(llm.context(prompt).generate(max_new_tokens=30)) for prompt in PROMPTS]
        while not llm.counters.forwards:
            await asyncio.sleep(0)
        tasks[0].cancel()
        return await asyncio.wait_for(asyncio.gather(*tasks[1:]), timeout=5)

    assert len(asyncio.run(run())) == len(PROMPTS) - 1
