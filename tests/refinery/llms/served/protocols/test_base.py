"""A protocol from outside: one file, named in a recipe, by which any stage asks its endpoint."""

import asyncio

import pytest
from helpers.scripted_server import scripted

from infer.recipe import pipeline_recipe
from refinery.errors import PluginError, RecipeError
from refinery.llms.build import build_llm
from refinery.llms.served.endpoint import EndpointConfig, RefusedRequest
from refinery.llms.served.transport.chat_request import parse_chat
from refinery.llms.served.transport.client import EndpointClient

GEMINI = """
from refinery.llms.served.endpoint import Reply
from refinery.llms.served.protocols.base import Address, ChatProtocol, api_key


def address(config, base_url):
    return Address(base_url, headers={"x-goog-api-key": api_key(config)})


def body(chat, config):
    return {"ask": chat.messages[-1][1], "most": chat.max_tokens}


def parse(reply):
    return Reply(reply["say"], "stop", "r1", 2, 1)


PROTOCOL = ChatProtocol("/generate", address, body, parse)
"""


@pytest.mark.parametrize("name", ["my_lab.gemini", "my_lab.gemini:PROTOCOL"])
def test_one_file_outside_is_a_protocol(my_lab, monkeypatch, name):
    my_lab("gemini", GEMINI)
    monkeypatch.setenv("GEMINI_API_KEY", "a key")

    async def generate(llm):
        reply = await llm.context("Where?").generate(max_new_tokens=9)
        await llm.close()
        return reply.text

    with scripted(lambda body: (200, {"say": "Lyon"})) as server:
        assert asyncio.run(generate(build_llm(EndpointConfig(protocol=name, base_url=server.address, model="m")))) == "Lyon"
        assert server.bodies == [{"ask": "Where?", "most": 9}]
        assert server.headers[0]["x-goog-api-key"] == "a key"


def test_a_reply_of_another_form_refuses_its_own_request(my_lab):
    my_lab("gemini_odd", GEMINI)
    config = EndpointConfig(protocol="my_lab.gemini_odd", model="m")
    with pytest.raises(RefusedRequest, match=r"protocol 'my_lab.gemini_odd' cannot read the reply \(KeyError: 'say'\)"):
        parse_chat({"said": "Lyon"}, config)


def test_a_file_that_declares_none_is_told_what_is_missing(my_lab):
    my_lab("empty", "")
    with pytest.raises(PluginError, match=r"recipe: protocol: protocol 'my_lab.empty': .*empty.py declares no PROTOCOL \(a ChatProtocol\)"):
        EndpointClient(EndpointConfig(protocol="my_lab.empty", model="m"))


def test_one_that_lacks_a_part_is_told_which(my_lab):
    my_lab("half", GEMINI.replace(", body, parse)", ", body)"))
    with pytest.raises(PluginError, match=r"cannot be imported \(TypeError at .*half.py:\d+: .* missing 1 required .* argument: 'parse'\)"):
        EndpointClient(EndpointConfig(protocol="my_lab.half", model="m"))


def test_another_object_is_told_what_it_should_be(my_lab):
    my_lab("other", "PROTOCOL = print\n")
    with pytest.raises(PluginError, match="protocol 'my_lab.other': is a builtin_function_or_method. It should be a ChatProtocol"):
        EndpointClient(EndpointConfig(protocol="my_lab.other", model="m"))


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"protocol": "antropic_messages"}, "endpoint.protocol: no protocol 'antropic_messages'. Did you mean 'anthropic_messages'"),
        ({"protocol": "anthropic_messages", "tokenizer": "t"}, "endpoint.tokenizer: is not supported by protocol 'anthropic_messages'"),
        ({"protocol": "anthropic_messages", "azure_api_version": "1"}, "endpoint.azure_api_version: is not supported by protocol"),
    ],
)
def test_a_recipe_is_refused_before_anything_is_asked(values, fault):
    recipe = pipeline_recipe({"decoder": "direct", "endpoint": {"model": "m"} | values}, where="r.yaml")
    with pytest.raises(RecipeError, match=f"r.yaml: {fault}"):
        recipe.check("r.yaml")


@pytest.mark.parametrize(
    ("protocol", "variable"),
    [("openai_chat", "OPENAI_API_KEY"), ("anthropic_messages", "ANTHROPIC_API_KEY"), ("my_lab.gemini:PROTOCOL", "GEMINI_API_KEY")],
)
def test_the_key_is_in_the_variable_named_after_the_protocol_or_another(protocol, variable):
    assert EndpointConfig(protocol=protocol, model="m").api_key_env == variable
    assert EndpointConfig(protocol=protocol, model="m", api_key_env="MINE").api_key_env == "MINE"
