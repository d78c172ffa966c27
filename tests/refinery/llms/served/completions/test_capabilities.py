"""What the probe finds, on servers that know, ignore or refuse what they are asked."""

import asyncio

import pytest
from helpers.completions_server import CompletionsServer

from refinery.errors import LLMError
from refinery.llms.served.completions.capabilities import NO_CAPABILITIES, Capabilities, probe
from refinery.llms.served.endpoint import ServedModelConfig, UnusableEndpoint

EXTENSIONS = {
    "return_token_ids",
    "skip_special_tokens",
    "stop_token_ids",
    "logprob_token_ids",
    "allowed_token_ids",
    "return_tokens_as_token_ids",
    "prompt_logprobs",
}


@pytest.fixture
def find(tiny_model, control_tokenizer):
    """What the probe finds on a tiny model's server, `faults` being those of CompletionsServer."""

    def run(*, adapters: dict[str, str] | None = None, **faults) -> Capabilities:
        with CompletionsServer(tiny_model, control_tokenizer, **faults) as server:
            config = ServedModelConfig(base_url=server.base_url, model="tiny", tokenizer="tiny", adapters=adapters or {})
            return asyncio.run(probe(config, control_tokenizer))

    return run


WHOLE = Capabilities(
    token_id_prompts=True,
    token_ids_returned=True,
    control_tokens=True,
    stop_token_ids=True,
    logprobs=True,
    label_logprobs="logprob_token_ids",
    raw_label_reads=True,
    label_reads_while_writing=True,
    text_scores="prompt_logprobs",
    cached_tokens=True,
)


def test_a_server_that_can_do_all_is_found_to(find):
    assert find() == WHOLE


def test_a_plain_text_server_can_do_nothing_else(find):
    found = find(text_only=True, refused={*EXTENSIONS, "logit_bias"}, ignored={"logprobs", "echo"})
    assert found == Capabilities(bos_in_text=True, cached_tokens=True)


def test_a_parameter_that_is_overlooked_proves_nothing(find):
    assert find(ignored={*EXTENSIONS, "logit_bias", "logprobs", "echo"}) == Capabilities(token_id_prompts=True, cached_tokens=True)


def test_openais_own_parameters_give_label_reads_and_scores(find):
    found = find(refused=EXTENSIONS, processed_logprobs=True)
    assert (found.label_logprobs, found.raw_label_reads, found.text_scores) == ("top_logprobs", False, "echo")
    assert found.lacking({"token_ids", "control_tokens", "label_logprobs", "scores"}) == [
        "token-id prompts and replies",
        "control tokens in replies",
    ]


@pytest.mark.parametrize("handled", ["refused", "ignored"])
def test_an_older_server_is_read_by_forcing_each_label(find, handled):
    found = find(**{handled: {"logprob_token_ids"}})
    assert (found.label_logprobs, found.raw_label_reads) == ("allowed_token_ids", True)


def test_labels_that_were_each_given_all_the_probability_are_not_believed(find):
    found = find(ignored={"logprob_token_ids"}, processed_logprobs=True)
    assert found.label_logprobs == "top_logprobs"


def test_a_server_that_lets_label_reads_change_the_text_is_not_asked_for_both_at_once(find):
    assert not find(ignored={"return_tokens_as_token_ids", "return_token_ids"}).label_reads_while_writing


def test_a_prefix_cache_with_long_blocks_is_seen(find, monkeypatch):
    monkeypatch.setattr("helpers.completions_server.BLOCK", 128)  # as vLLM's CPU build has them
    assert find().cached_tokens


def test_needs_are_named_in_the_words_of_the_refusal():
    needs = {"token_ids", "control_tokens", "stop_token_ids", "logprobs", "label_logprobs", "scores"}
    assert WHOLE.lacking(needs) == []
    assert len(NO_CAPABILITIES.lacking(needs)) == len(needs)


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({}, "serves no adapter 'judge'. Load it under that name (vLLM: --enable-lora --lora-modules judge=PATH)."),
        ({"any_model": True}, "accepts any model name, so it cannot serve adapters by name."),
    ],
)
def test_an_adapter_that_is_not_served_is_named(find, faults, message):
    with pytest.raises(LLMError) as raised:
        find(adapters={"relevance": "judge"}, **faults)
    assert message in str(raised.value)


def test_a_server_that_is_not_there_says_where(control_tokenizer):
    config = ServedModelConfig(base_url="http://127.0.0.1:9/v1", model="tiny", tokenizer="tiny")
    with pytest.raises(UnusableEndpoint, match=r"endpoint http://127.0.0.1:9/v1 \(model 'tiny'\) cannot be used"):
        asyncio.run(probe(config, control_tokenizer))


def test_servers_that_differ_are_not_mixed(tiny_model, control_tokenizer):
    with CompletionsServer(tiny_model, control_tokenizer) as one, CompletionsServer(tiny_model, control_tokenizer, text_only=True) as other:
        config = ServedModelConfig(base_url=[one.base_url, other.base_url], model="tiny", tokenizer="tiny")
        with pytest.raises(LLMError, match="differ in their capabilities"):
            asyncio.run(probe(config, control_tokenizer))
