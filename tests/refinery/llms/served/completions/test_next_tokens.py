"""What a node of a tree costs on a completions server, with a model that begins with the node's actions by itself."""

import asyncio
from collections.abc import Sequence

import pytest
import torch
from helpers.completions_server import CompletionsServer

from refinery.contract.segments import Segment
from refinery.llms.base import Usage
from refinery.llms.engine.huggingface import HuggingFaceLLM
from refinery.llms.served.completions.capabilities import probe
from refinery.llms.served.completions.llm import CompletionsLLM
from refinery.llms.served.endpoint import ServedModelConfig

ACTIONS = ("[S_Rewritten_Query]", "[S_Decomposed_Query]", "[S_Disambiguated_Query]", "[A_Response]")
LENGTHS = dict(zip(ACTIONS, (5, 6, 7, 3), strict=True))
PROMPT = "Question: Who directed Dune?"


def control(text: str) -> list[Segment]:
    return [Segment(text, "control_token")]


async def open_node(context, actions: Sequence[str] = ACTIONS, temperature: float = 0.0):
    """The log-probability of each action and the text behind it, asked for at once as a tree does."""

    async def one(action):
        opened = context.extend(control(action))
        return await asyncio.gather(
            context.score(control(action)),
            opened.generate(max_new_tokens=LENGTHS[action], stop=("[EOS]",), temperature=temperature),
        )

    return await asyncio.gather(*map(one, actions))


@pytest.fixture
def likes(tiny_model, control_tokenizer):
    """Make the model begin and go on with a token: the bias is part of its logits, here and behind the server."""

    def run(token: str) -> None:
        bias = torch.zeros(tiny_model.lm_head.out_features)
        bias[control_tokenizer.convert_tokens_to_ids(token)] = 50.0
        tiny_model.lm_head.bias = torch.nn.Parameter(bias, requires_grad=False)

    return run


@pytest.fixture
def ask(tiny_model, control_tokenizer):
    """What `use` gives on a context of the completions engine, the requests that it took, and the cost."""

    def run(use, **faults):
        with CompletionsServer(tiny_model, control_tokenizer, **faults) as server:
            config = ServedModelConfig(base_url=server.base_url, model="tiny", tokenizer="tiny")

            async def asked():
                llm, usage = CompletionsLLM(config, control_tokenizer, await probe(config, control_tokenizer)), Usage()
                probed = len(server.requests)
                try:
                    return await use(llm.context(PROMPT, usage=usage)), server.requests[probed:], usage
                finally:
                    await llm.close()

            return asyncio.run(asked())

    return run


def assert_as_here(found, tiny_model, control_tokenizer, actions: Sequence[str] = ACTIONS) -> None:
    expected = asyncio.run(open_node(HuggingFaceLLM(tiny_model, control_tokenizer).context(PROMPT), actions))
    for (logprob, text), (other_logprob, other) in zip(found, expected, strict=True):
        assert logprob == pytest.approx(other_logprob, abs=1e-4)
        assert (text.token_ids, text.text, text.stopped_by) == (other.token_ids, other.text, other.stopped_by)
        assert text.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        assert text.context.token_ids == other.context.token_ids


@pytest.mark.parametrize("action", ["[A_Response]", "[S_Disambiguated_Query]"])
def test_the_text_behind_the_likeliest_action_is_written_while_all_actions_are_read(ask, likes, tiny_model, control_tokenizer, action):
    likes(action)
    found, requests, usage = ask(open_node)
    assert len(requests) == usage.calls == len(ACTIONS)  # one for each text, and none that only reads
    assert requests[0]["logprob_token_ids"] == control_tokenizer.convert_tokens_to_ids(list(ACTIONS))
    assert_as_here(found, tiny_model, control_tokenizer)


def test_a_leaf_takes_one_request(ask, likes, tiny_model, control_tokenizer):
    likes("[A_Response]")
    found, requests, _ = ask(lambda context: open_node(context, ["[A_Response]"]))
    assert len(requests) == 1
    assert_as_here(found, tiny_model, control_tokenizer, ["[A_Response]"])


def test_a_model_that_begins_otherwise_is_not_left_to_begin_again_below(ask, likes, tiny_model, control_tokenizer):
    likes("[R_Evidences]")

    async def two_levels(context):
        (_, text), *_ = found = await open_node(context)
        await open_node(text.context)
        return found

    found, requests, _ = ask(two_levels)
    reading = [request for request in requests if "logprob_token_ids" in request]
    assert len(requests) == 2 * (len(ACTIONS) + 1)
    assert [request["max_tokens"] for request in reading] == [max(LENGTHS.values()) + 1, 1]
    assert_as_here(found, tiny_model, control_tokenizer)


def test_an_action_that_was_read_before_is_not_read_again(ask, likes):
    likes("[A_Response]")

    async def choose_then_open(context):
        await asyncio.gather(*(context.score(control(action)) for action in ACTIONS))
        return await open_node(context, ACTIONS[:2])

    _, requests, _ = ask(choose_then_open)
    assert len(requests) == 1 + 2


def test_texts_that_are_sampled_are_each_drawn_by_their_own_request(ask, likes):
    likes("[A_Response]")
    _, requests, _ = ask(lambda context: open_node(context, temperature=1.0))
    assert len(requests) == 1 + len(ACTIONS)


def test_a_text_that_the_server_has_no_room_for_leaves_the_others_as_they_are(tiny_model, control_tokenizer):
    query, answer = actions = ("[S_Decomposed_Query]", "[A_Response]")
    with CompletionsServer(tiny_model, control_tokenizer) as server:
        config = ServedModelConfig(base_url=server.base_url, model="tiny", tokenizer="tiny")

        async def asked():
            llm = CompletionsLLM(config, control_tokenizer, await probe(config, control_tokenizer))
            context = llm.context(PROMPT)
            server.max_length = len(context.token_ids) + 1 + LENGTHS[answer]
            try:
                return await open_node(context, actions)
            finally:
                await llm.close()

        (logprob, refused), answered = asyncio.run(asked())
    assert refused.stopped_by == "refused"
    assert_as_here([answered], tiny_model, control_tokenizer, [answer])
    ((expected, _),) = asyncio.run(open_node(HuggingFaceLLM(tiny_model, control_tokenizer).context(PROMPT), [query]))
    assert logprob == pytest.approx(expected, abs=1e-4)
