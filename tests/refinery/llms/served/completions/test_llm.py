"""The completions engine over real HTTP, against the Hugging Face engine on the same model."""

import asyncio

import pytest
from helpers.chat_templates import reasoning_tokenizer
from helpers.completions_server import CompletionsServer

from refinery.contract.segments import Segment
from refinery.errors import LLMError
from refinery.llms.base import Usage
from refinery.llms.engine.huggingface import HuggingFaceLLM
from refinery.llms.served.completions.api import CompletionRequest
from refinery.llms.served.completions.capabilities import Capabilities, probe
from refinery.llms.served.completions.llm import CompletionsLLM, without_special_tokens
from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest, ServedModelConfig
from refinery.llms.served.wire.responses import RetryableFault

PROMPT = "Question: Who directed Dune?"
LABELS = [" know", " unknow"]
END = "[EOS]"
OPENAI = {"refused": {"return_token_ids", "stop_token_ids", "logprob_token_ids", "allowed_token_ids", "prompt_logprobs"}}


@pytest.fixture
def ask(tiny_model, control_tokenizer):
    """Run `use(llm)` on the completions engine over a tiny model's server. Gives the result, the requests after the probe's, the LLM."""

    def run(use, *, max_tokens=500, busy=0, **faults):
        with CompletionsServer(tiny_model, control_tokenizer, **faults) as server:
            config = ServedModelConfig(base_url=server.base_url, model="tiny", tokenizer="tiny", max_tokens=max_tokens)

            async def asked():
                llm = CompletionsLLM(config, control_tokenizer, await probe(config, control_tokenizer))
                probed, server.busy = len(server.requests), busy
                try:
                    return await use(llm), server.requests[probed:], llm
                finally:
                    await llm.close()

            return asyncio.run(asked())

    return run


@pytest.fixture
def engine(tiny_model, control_tokenizer):
    return HuggingFaceLLM(tiny_model, control_tokenizer)


def plain(text: str) -> list[Segment]:
    return [Segment(text, "prompt")]


def control(text: str) -> list[Segment]:
    return [Segment(text, "control_token")]


async def write_read_and_go_on(llm):
    """Everything a decoder does: open a step, write it, insert evidence, write again, read a label, score a text."""
    opened = llm.context(PROMPT).extend(control("[S_Rewritten_Query]"))
    query = await opened.generate(max_new_tokens=8, stop=(END,))
    found = query.context.extend([*control("[R_Evidences]"), *plain("Title: Dune [A_Response] </s>\n"), *control("[/R_Evidences]")])
    answer = await found.extend(control("[A_Response]")).generate(max_new_tokens=5, stop=(END,))
    labels = await found.label_probs(LABELS)
    one_token = await found.score(control("[A_Response]"))
    text = await found.score(plain(" Lyon, or Oslo"))
    return query, answer, labels, one_token, text


DIALECTS = {
    "vllm": {},
    "older vllm": {"refused": {"logprob_token_ids"}},
    "echo": {"ignored": {"prompt_logprobs"}},
}


@pytest.mark.parametrize("faults", DIALECTS.values(), ids=DIALECTS)
def test_every_dialect_gives_what_the_engine_on_this_machine_gives(ask, engine, faults):
    (query, answer, labels, one_token, text), _, _ = ask(write_read_and_go_on, **faults)
    expected = asyncio.run(write_read_and_go_on(engine))
    for generation, other in zip((query, answer), expected[:2], strict=True):
        assert (generation.token_ids, generation.text) == (other.token_ids, other.text)
        assert generation.stopped_by == other.stopped_by
        assert generation.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        assert generation.context.token_ids == other.context.token_ids
    assert labels == pytest.approx(expected[2], abs=1e-4)
    assert one_token == pytest.approx(expected[3], abs=1e-4)
    assert text == pytest.approx(expected[4], abs=1e-4)


def test_label_odds_survive_a_server_that_reports_what_it_sampled_from(ask, engine):
    probs, requests, llm = ask(lambda llm: llm.context(PROMPT).label_probs(LABELS), processed_logprobs=True, **OPENAI)
    assert llm.capabilities.label_logprobs == "top_logprobs"
    assert probs == pytest.approx(asyncio.run(engine.context(PROMPT).label_probs(LABELS)), abs=1e-4)
    assert len(requests) == 1


def test_a_stop_token_ends_the_text_and_belongs_to_it(ask, engine):
    written = asyncio.run(engine.context(PROMPT).generate(max_new_tokens=6)).token_ids
    stop = engine.tokenizer.convert_ids_to_tokens(written[2])
    generation, _, _ = ask(lambda llm: llm.context(PROMPT).generate(max_new_tokens=6, stop=(stop,)))
    assert generation.stopped_by == "stop"
    assert generation.token_ids == written[: written.index(written[2]) + 1]


def test_prompts_are_sent_as_token_ids_and_one_token_is_scored_without_a_second_pass(ask):
    _, requests, _ = ask(write_read_and_go_on)
    assert all(isinstance(request["prompt"], list) for request in requests)
    assert sum("prompt_logprobs" in request for request in requests) == 1  # the text of several tokens
    assert all(request["skip_special_tokens"] is False for request in requests if "return_token_ids" in request)


def test_single_tokens_that_are_scored_at_once_are_read_by_one_request(ask, engine):
    actions = ["[A_Response]", "[S_Rewritten_Query]", "[S_Decomposed_Query]", "[A_Response]"]

    async def score_each(llm):
        context = llm.context(PROMPT)
        return await asyncio.gather(*(context.score(control(action)) for action in actions))

    scores, requests, _ = ask(score_each)
    assert [request["logprob_token_ids"] for request in requests] == [engine.tokenizer.convert_tokens_to_ids(actions[:3])]
    for score, expected in zip(scores, asyncio.run(score_each(engine)), strict=True):
        assert score == pytest.approx(expected, abs=1e-4)


def test_what_the_server_had_cached_is_not_counted_again(ask):
    usage = Usage()

    async def twice(llm):
        context = llm.context(PROMPT * 8, usage=usage)
        for _ in range(2):
            await context.generate(max_new_tokens=3)
        return len(context.token_ids)

    length, _, llm = ask(twice)
    assert length <= usage.prefill_tokens < length + 16
    assert (usage.calls, usage.decode_tokens) == (2, 6)
    assert (llm.counters.prefill_tokens, llm.counters.decode_tokens) == (usage.prefill_tokens, usage.decode_tokens)


def test_a_busy_server_is_asked_again(ask):
    generation, requests, _ = ask(lambda llm: llm.context(PROMPT).generate(max_new_tokens=3), busy=1)
    assert (len(generation.token_ids), len(requests)) == (3, 2)


def test_the_endpoints_limit_holds_for_every_reply(ask):
    assert len(ask(lambda llm: llm.context(PROMPT).generate(max_new_tokens=9), max_tokens=4)[0].token_ids) == 4


def test_a_prompt_that_the_server_does_not_take_is_a_refused_reply(ask, caplog):
    generation, _, _ = ask(lambda llm: llm.context(PROMPT * 100).generate(max_new_tokens=3))
    assert (generation.stopped_by, generation.text, generation.token_ids) == ("refused", "", [])
    assert "withheld a reply: status 400" in caplog.text


TEXT_ONLY = {"text_only": True, "refused": {"return_token_ids", "stop_token_ids", "prompt_logprobs"}, "ignored": {"logprobs", "echo"}}


def test_a_text_server_is_asked_with_the_prompt_as_it_was_given(ask):
    generation, requests, _ = ask(lambda llm: llm.context(PROMPT).extend(plain(" A </s> B")).generate(max_new_tokens=4), **TEXT_ONLY)
    assert requests[0]["prompt"] == f"<s>{PROMPT} A < /s> B"  # this server's tokenizer adds no BOS
    assert requests[0].keys() == {"model", "prompt", "max_tokens", "temperature"}
    assert (generation.token_ids, generation.logprobs, generation.stopped_by) == ([], [], "length")
    assert generation.text


def test_what_a_model_wrote_is_never_put_into_text_again(ask):
    async def go_on(llm):
        first = await llm.context(PROMPT).generate(max_new_tokens=4)
        return await first.context.extend(plain("more")).generate(max_new_tokens=4)

    with pytest.raises(LLMError, match="accepts text only, and what a model wrote must not be re-encoded from text"):
        ask(go_on, **TEXT_ONLY)


def test_outside_text_forges_no_special_token(control_tokenizer):
    text = without_special_tokens("a [A_Response] b </s><s> [EOS]", control_tokenizer)
    assert not set(control_tokenizer(text, add_special_tokens=False)["input_ids"]) & set(control_tokenizer.all_special_ids)


def test_a_need_that_is_not_met_is_refused_in_one_line(control_tokenizer):
    config = ServedModelConfig(base_url="http://127.0.0.1:9/v1", model="tiny", tokenizer="tiny")
    llm = CompletionsLLM(config, control_tokenizer, Capabilities(token_id_prompts=True, token_ids_returned=True))
    llm.require("direct", frozenset())
    with pytest.raises(LLMError) as raised:
        llm.require("rq_rag", frozenset({"token_ids", "logprobs", "scores"}))
    assert str(raised.value) == (
        "endpoint http://127.0.0.1:9/v1 (model 'tiny') gives no log-probabilities, no log-probabilities of given text, which decoder"
        " 'rq_rag' needs. Serve the model with vLLM, or name it in `llm` instead of `endpoint` in the recipe."
    )


@pytest.mark.parametrize(
    "reply",
    [
        {"choices": [{"text": ["a"]}]},
        {"choices": [{"text": "a", "token_ids": ["b"]}]},
        {"choices": [{"text": "a", "logprobs": {"token_logprobs": "none"}}]},
    ],
)
def test_a_reply_that_is_no_completion_is_refused(reply):
    with pytest.raises(RefusedRequest, match="the reply is not a completion"):
        CompletionRequest("tiny", [1], 1, 0.0, {}).parse(reply, EndpointConfig(model="tiny"))


@pytest.mark.parametrize(
    "reply",
    [
        [],
        {"choices": None},
        {"choices": []},
        {"choices": [{"text": None}]},
        {"choices": [{"text": "", "finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 0}},
        {"choices": [{"text": "Lyo", "finish_reason": "abort"}]},
    ],
)
def test_a_reply_that_the_server_did_not_write_may_be_asked_for_again(reply):
    with pytest.raises(RetryableFault):
        CompletionRequest("tiny", [1], 1, 0.0, {}).parse(reply, EndpointConfig(model="tiny"))


@pytest.mark.parametrize(
    "choice",
    [
        {"text": "", "token_ids": [2]},
        {"text": "", "logprobs": {"token_logprobs": [None, -0.5]}},
        {"text": "", "prompt_logprobs": [None, {"5": {"logprob": -0.5}}]},
        {"text": "", "finish_reason": "length"},
    ],
)
def test_a_reply_without_a_text_may_be_whole(choice):
    assert CompletionRequest("tiny", [1], 1, 0.0, {}).parse({"choices": [choice]}, EndpointConfig(model="tiny")).text == ""


def test_a_reply_that_a_filter_withholds_is_refused(control_tokenizer):
    body = {"choices": [{"text": "", "finish_reason": "content_filter"}]}
    reply = CompletionRequest("tiny", [1], 2, 0.0, {}).parse(body, EndpointConfig(model="tiny"))
    config = ServedModelConfig(base_url="http://127.0.0.1:9/v1", model="tiny", tokenizer="tiny")
    context = CompletionsLLM(config, control_tokenizer, Capabilities()).context("a")
    assert context._generation(reply, [], ()).stopped_by == "refused"


@pytest.mark.parametrize("logprobs", [None, [], [-0.5], [-0.5, None], [-0.5, float("nan")]])
def test_a_text_with_log_probabilities_left_out_is_an_error_and_never_a_score(control_tokenizer, logprobs):
    body = {"model": "tiny", "choices": [{"text": "a", "token_ids": [5, 6], "logprobs": {"token_logprobs": logprobs}}]}
    reply = CompletionRequest("tiny", [1], 2, 0.0, {}).parse(body, EndpointConfig(model="tiny"))
    config = ServedModelConfig(base_url="http://127.0.0.1:9/v1", model="tiny", tokenizer="tiny")
    context = CompletionsLLM(config, control_tokenizer, Capabilities(logprobs=True)).context("a")
    with pytest.raises(LLMError, match=r"gave \d log-probabilities instead of 2"):
        context._generation(reply, [], ())


@pytest.mark.parametrize("gives_ids", [False, True])
def test_a_thought_that_the_prompt_opened_and_the_limit_cut_is_no_reply(gives_ids):
    tokenizer = reasoning_tokenizer("unused")
    config = ServedModelConfig(base_url="http://127.0.0.1:9/v1", model="tiny", tokenizer="tiny")
    opened = Segment("", "template", token_ids=tuple(tokenizer("Who?<think>\n")["input_ids"]))
    context = CompletionsLLM(config, tokenizer, Capabilities(token_ids_returned=gives_ids)).context([opened])
    given = {"token_ids": tokenizer("Lyon? I")["input_ids"]} if gives_ids else {}
    body = {"model": "tiny", "choices": [{"text": "Lyon? I", "finish_reason": "length", **given}]}
    generation = context._generation(CompletionRequest("tiny", [1], 9, 0.0, {}).parse(body, EndpointConfig(model="tiny")), [], ())
    assert (generation.text, generation.reasoning) == ("", "Lyon? I")
