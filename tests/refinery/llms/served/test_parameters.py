"""The parameters of a model: which a recipe may set, what is sent, and what is in a row's provenance."""

import re

import pytest

from distill.label_context import _sampling
from infer.recipe import pipeline_recipe
from refinery.errors import RecipeError
from refinery.llms.served.chat_llm import GenerationRequest
from refinery.llms.served.completions.api import CompletionRequest
from refinery.llms.served.endpoint import EndpointConfig, ServedModelConfig
from refinery.llms.served.transport.chat_request import ChatRequest
from refinery.llms.served.transport.refused_parameters import RefusedParameters
from refinery.runtime.recipe import build_recipe

MESSAGES = (("user", "Where?"),)


def body(**values) -> dict:
    return ChatRequest(b"", MESSAGES, rollout=2).body(EndpointConfig(model="m", **values))


def test_a_parameter_that_is_not_set_is_not_sent():
    assert body().keys() == {"model", "messages", "temperature", "max_tokens"}


def test_each_sample_has_its_seed():
    assert body(seed=40)["seed"] == 42


def test_room_for_reasoning_is_added_to_every_limit():
    assert body(max_tokens=100, reasoning_tokens=50)["max_tokens"] == 150
    request = GenerationRequest.of(MESSAGES, 9, 0.0, ())
    assert request.body(EndpointConfig(model="m", reasoning_tokens=50))["max_tokens"] == 59


def test_an_object_of_extra_body_is_merged_into_the_one_that_is_sent():
    sent = body(enable_thinking=False, extra_body={"chat_template_kwargs": {"effort": 1}, "top_k": 5})
    assert (sent["chat_template_kwargs"], sent["top_k"]) == ({"enable_thinking": False, "thinking": False, "effort": 1}, 5)


@pytest.mark.parametrize(
    ("extra", "fault"),
    [
        ({"temperature": 1}, "extra_body: 'temperature' has a key of its own; set `temperature` instead"),
        ({"max_completion_tokens": 1}, "extra_body: 'max_completion_tokens' has a key of its own; set `max_tokens` instead"),
        ({"stream": True}, "extra_body: 'stream' is set by each request; leave it out"),
        ({"headers": {"Authorization": "Bearer sk-abcdefghijklmnop"}}, "extra_body.headers.Authorization: contains what looks like a key"),
    ],
)
def test_extra_body_takes_only_what_no_other_key_sets(extra, fault):
    with pytest.raises(RecipeError, match=re.escape(fault)):
        build_recipe({"model": "m", "extra_body": extra}, EndpointConfig, where="r.yaml")


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"tokenizer": "t", "seed": 1}, "endpoint.seed: is for chats only, and with a `tokenizer` completions are used"),
        ({"protocol": "anthropic_messages", "seed": 1}, "endpoint.seed: is not sent by protocol 'anthropic_messages'. Leave it out, or"),
    ],
)
def test_a_parameter_that_would_not_be_sent_is_refused_before_anything_is_asked(values, fault):
    recipe = pipeline_recipe({"decoder": "direct", "endpoint": {"model": "m"} | values}, where="r.yaml")
    with pytest.raises(RecipeError, match=f"r.yaml: {fault}"):
        recipe.check("r.yaml")


def test_completions_send_top_p_and_the_servers_own_keys():
    config = ServedModelConfig(model="m", tokenizer="t", top_p=0.5, extra_body={"top_k": -1})
    sent = CompletionRequest("m", [1, 2], 3, 0.7, {"logprobs": 1}).body(config)
    assert sent == {"model": "m", "prompt": [1, 2], "max_tokens": 3, "temperature": 0.7, "top_p": 0.5, "logprobs": 1, "top_k": -1}


def test_samples_of_a_label_need_different_seeds():
    with pytest.raises(RecipeError, match="replies with one `seed` are all the same"):
        pipeline_recipe({"decoder": "direct", "endpoint": {"model": "m", "seed": 1, "temperature": 1, "label_samples": 3}}, where="r.yaml")


def test_a_rows_provenance_has_the_parameters_that_are_set():
    assert _sampling(EndpointConfig(model="m")) == {"temperature": 0.0, "max_tokens": 500}
    config = EndpointConfig(model="m", top_p=0.5, enable_thinking=False, reasoning_tokens=9)
    assert _sampling(config) == {"temperature": 0.0, "max_tokens": 500, "reasoning_tokens": 9, "top_p": 0.5, "enable_thinking": False}


@pytest.mark.parametrize(
    "said",
    [
        b"The model was asked about the temperature of a city, which the content filter flagged.",
        b"temperature: Input should be less than or equal to 1",
        b"'max_tokens' is too large: 500. This model supports at most 400 completion tokens.",
        b"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        b"Unsupported parameter: 'top_p' is not supported with this model.",
    ],
)
def test_an_error_of_another_kind_leaves_the_parameters_alone(said):
    sent = {"temperature": 0, "max_tokens": 9, "top_p": 1}
    refused = RefusedParameters("endpoint")
    assert not refused.learn(400, said, sent)
    assert refused.fit(sent) == sent


def test_a_limit_that_is_refused_under_both_names_is_an_error():
    refused, sent = RefusedParameters("endpoint"), {"max_tokens": 9}
    assert refused.learn(400, b"max_tokens is not supported", sent)
    assert refused.fit(sent) == {"max_completion_tokens": 9}
    assert not refused.learn(400, b"max_completion_tokens is not supported", refused.fit(sent))
