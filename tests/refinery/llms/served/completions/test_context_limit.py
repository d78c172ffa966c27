"""The longest context that a server says it takes, and prompts that are fitted to it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import pytest
from helpers.completions_server import CompletionsServer

from infer.session import Session
from infer.steps.scorers import relevance_judge
from refinery.contract.records import Passage, Question
from refinery.demo.teacher.server import ChatServer, serving
from refinery.llms.build import build_llm
from refinery.llms.served.chat_llm import ChatLLM
from refinery.llms.served.completions.capabilities import probe
from refinery.llms.served.completions.context_limit import ByteTokens, served_context_limit
from refinery.llms.served.endpoint import ServedModelConfig
from refinery.retrievers.fake import FakeRetriever

LONG = Passage(id="long", title="Lyon", text="Lyon is a city in France. " * 200)


@contextmanager
def completions(model, tokenizer, *limits: int | None) -> Iterator[list[CompletionsServer]]:
    servers = [CompletionsServer(model, tokenizer, max_model_len=limit) for limit in limits]
    for server in servers:
        server.__enter__()
    try:
        yield servers
    finally:
        for server in servers:
            server.__exit__()


@pytest.mark.parametrize(("said", "limit"), [([512], 512), ([512, 256], 256), ([512, None], 512), ([None], None)])
def test_the_shortest_of_all_addresses_counts(tiny_model, control_tokenizer, said, limit):
    with completions(tiny_model, control_tokenizer, *said) as servers:
        config = ServedModelConfig(base_url=[server.base_url for server in servers], model="tiny", tokenizer="tiny")
        assert asyncio.run(probe(config, control_tokenizer)).context_limit == limit


def test_a_server_that_is_gone_or_serves_another_model_says_nothing(tiny_model, control_tokenizer):
    assert asyncio.run(served_context_limit(ServedModelConfig(base_url="http://127.0.0.1:9/v1", model="tiny"))) is None
    with completions(tiny_model, control_tokenizer, 512) as (server,):
        assert asyncio.run(served_context_limit(ServedModelConfig(base_url=server.base_url, model="other"))) is None


def test_a_chat_server_is_asked_for_it_when_the_model_is_built(tiny_model, control_tokenizer):
    with completions(tiny_model, control_tokenizer, 512) as (server,):
        llm = build_llm(ServedModelConfig(base_url=server.base_url, model="tiny"))
    assert (llm.served_limit, llm.record()["context_limit"]) == (512, 512)
    assert 0 < llm.context_limit < 512


def test_a_prompt_for_a_chat_is_fitted_by_its_bytes():
    prompts: list[str] = []

    async def decode(server: ChatServer):
        llm = ChatLLM(ServedModelConfig(base_url=server.base_url, model="scripted"), 600)
        long = [LONG.model_copy(update={"id": str(i)}) for i in range(3)]
        question = Question(id="q", text="Where is Lyon?")
        tools = Session(question, llm, FakeRetriever(lambda query: long), passages_per_query=3)
        decoder = import_module("infer.decoders.rag")
        try:
            return await decoder.decode(tools.readable(), tools, decoder.Options())
        finally:
            await llm.close()

    with serving(lambda prompt: prompts.append(prompt) or "France") as server:
        prediction = asyncio.run(decode(server))
    assert prediction.answer == "France"
    assert 600 < len(prompts[0]) < 3 * 600
    assert prediction.trace[0].shortened == 3


def test_a_judge_behind_a_chat_reads_what_fits():
    prompts: list[str] = []

    async def judge(server: ChatServer):
        llm = ChatLLM(ServedModelConfig(base_url=server.base_url, model="scripted"), 600)
        tools = Session(Question(id="q", text="Where is Lyon?"), llm, None, passages_per_query=1)
        try:
            return await relevance_judge("relevance", tools, depth=0).score("Where is Lyon?", [LONG])
        finally:
            await llm.close()

    with serving(lambda prompt: prompts.append(prompt) or "relevant") as server:
        assert asyncio.run(judge(server)) == [1.0]
    assert 600 < len(prompts[0]) < 3 * 600


@pytest.mark.parametrize("text", ["", "Lyon", "où", "日本の首都はどこですか"])
def test_what_counts_bytes_gives_the_text_back(text):
    counter = ByteTokens()
    token_ids = counter(text)["input_ids"]
    assert counter.decode(token_ids) == text
    assert text.startswith(counter.decode(token_ids[:-1]))
