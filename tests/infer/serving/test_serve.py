"""A decoder served over HTTP, asked by the real `openai` client: what it answers."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from helpers.chat_client import FILMS, PASSAGES, ask, slow_decoder, wait_for
from helpers.scripted_server import chat_reply, prompt_of, scripted

from infer.pipeline import Pipeline
from infer.recipe import PipelineRecipe
from refinery.contract.records import write_records
from refinery.errors import LLMError, RecordError
from refinery.llms.served.endpoint import ServedModelConfig


def test_an_answer_comes_with_its_trace_and_what_it_cost(pipeline, served):
    reply = ask(served(pipeline))
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason, reply.model) == ("Cleo Marn", "stop", "rag")
    assert [step["name"] for step in reply.refinery["trace"]] == ["retrieve", "answer_with_passages"]
    assert reply.refinery["trace"][0]["passages"][0]["title"] == "Cedar Falls"
    assert reply.usage.completion_tokens == reply.refinery["cost"]["decode_tokens"] > 0
    assert reply.refinery["ignored"] == []


def test_a_stream_opens_at_once_and_ends_with_trace_and_usage(pipeline, served):
    chunks = list(ask(served(pipeline), stream=True, stream_options={"include_usage": True}))
    *spoken, end, usage = chunks
    assert [chunk.choices[0].delta.content for chunk in spoken] == ["", None, None, "Cleo Marn"]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert (end.choices[0].delta.content, end.choices[0].finish_reason) == (None, "stop")
    assert end.refinery["trace"][0]["name"] == "retrieve"
    assert (usage.choices, usage.usage.total_tokens) == ([], usage.usage.prompt_tokens + usage.usage.completion_tokens)
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_long_silence_is_filled_so_that_the_stream_stays_open(pipeline, served, monkeypatch):
    monkeypatch.setattr("infer.serving.reply._KEEP_ALIVE_SECONDS", 0.01)
    pipeline.decoder = slow_decoder(lambda question, session: asyncio.sleep(0.1))
    with served(pipeline).chat.completions.with_streaming_response.create(
        model="rag", messages=[{"role": "user", "content": "Who?"}], stream=True
    ) as response:
        lines = [line for line in response.iter_lines() if line]
    assert ": thinking" in lines
    assert lines[-1] == "data: [DONE]"


def test_what_has_no_effect_is_said(pipeline, served):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Who made Cedar Falls?"}]},
    ]
    reply = ask(served(pipeline), messages=messages, reasoning_effort="low", tools=[])
    assert reply.choices[0].message.content == "Cleo Marn"
    assert reply.refinery["ignored"] == ["reasoning_effort", "system messages"]


LIMITS = [
    ({"max_tokens": 1}, "Cleo", "length"),
    ({"max_completion_tokens": 2}, "Cleo Marn", "stop"),
    ({"max_tokens": 900}, "Cleo Marn", "stop"),
    ({"max_tokens": -1}, "Cleo Marn", "stop"),
    ({"max_completion_tokens": -1}, "Cleo Marn", "stop"),
    ({}, "Cleo Marn", "stop"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("asked", "answer", "reason"), LIMITS)
def test_a_clients_limit_cuts_the_answer_and_no_call_on_the_way_to_it(pipeline, served, asked, answer, reason, stream):
    seen = []

    async def note(question, session):
        seen.append(session.max_new_tokens)
        return "Cleo Marn"

    pipeline.decoder = slow_decoder(note)
    reply = ask(served(pipeline), **asked, stream=stream)
    got = [(part.delta.content or "", part.finish_reason) for chunk in reply for part in chunk.choices] if stream else []
    got = got or [(reply.choices[0].message.content, reply.choices[0].finish_reason)]
    assert ("".join(text for text, _ in got), got[-1][1], seen) == (answer, reason, [8])


def test_a_limit_counts_the_served_models_tokens_and_words_where_there_is_no_tokenizer(pipeline, served, tiny_tokenizer):
    async def year(question, session):
        return "in 1930"

    pipeline.decoder = slow_decoder(year)
    pipeline.llm.tokenizer = tiny_tokenizer
    ids = tiny_tokenizer("in 1930", add_special_tokens=False)["input_ids"]
    most = len(ids) - 1
    client = served(pipeline)
    assert ask(client, max_tokens=most).choices[0].message.content == tiny_tokenizer.decode(ids[:most])
    assert ask(client, max_tokens=most + 1).choices[0].message.content == "in 1930"
    without = ServedModelConfig(base_url="http://127.0.0.1:9/v1", model="m")
    pipeline.recipe = pipeline.recipe.model_copy(update={"llm": None, "endpoint": without})
    assert ask(client, max_tokens=1).choices[0].message.content == "in"


def test_questions_are_answered_together_and_one_too_many_is_sent_away(pipeline, served):
    arrived, release = [], threading.Event()

    async def together(question, session):
        arrived.append(question.id)
        while not release.is_set():
            await asyncio.sleep(0.01)

    pipeline.decoder = slow_decoder(together)
    client = served(pipeline)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, client) for _ in range(8)]
        wait_for(lambda: len(arrived) == 8)
        with pytest.raises(openai.RateLimitError, match="8 questions are being answered") as refused:
            ask(client)
        assert refused.value.response.headers["retry-after"] == "1"
        assert client.models.list().data  # who only looks is let in
        release.set()
        assert {future.result().choices[0].message.content for future in asked} == {"done"}
    assert ask(client)  # there is room again


@pytest.mark.parametrize("stream", [False, True])
def test_nobody_computes_on_for_a_client_that_has_hung_up(pipeline, served, stream):
    seen = []

    async def forever(question, session):
        seen.append("begun")
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("ended")

    pipeline.decoder = slow_decoder(forever)
    client = served(pipeline).with_options(timeout=0.5)
    with pytest.raises((openai.APITimeoutError, openai.APIConnectionError, TimeoutError)):
        list(ask(client, stream=stream))
    wait_for(lambda: seen == ["begun", "ended"])


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (RecordError("the question brings no passages"), openai.BadRequestError, "brings no passages"),
        (LLMError("the model's endpoint is down"), openai.InternalServerError, "endpoint is down"),
        (RuntimeError("/secret/path"), openai.InternalServerError, "the decoder failed"),
        (None, openai.InternalServerError, "no answer within 1 seconds"),
    ],
)
def test_a_decoder_that_fails_is_an_error_of_its_own_request(pipeline, served, fault, error, message):
    async def fail(question, session):
        if fault is None:
            await asyncio.sleep(60)
        raise fault

    good, pipeline.decoder = pipeline.decoder, slow_decoder(fail)
    client = served(pipeline, timeout_seconds=30 if fault else 1)
    with pytest.raises(error, match=message) as raised:
        ask(client)
    assert "secret" not in str(raised.value)
    with pytest.raises(openai.APIError, match=message):
        list(ask(client, stream=True))
    pipeline.decoder = good
    assert ask(client).choices[0].message.content == "Cleo Marn"


def test_a_checkpoint_answers_many_at_once_as_it_answers_one(tmp_path, tiny_bases, served):
    write_records(tmp_path / "passages.jsonl", PASSAGES)
    values = {"decoder": "rag", "llm": {"base": str(tiny_bases["tied"])}}
    pipeline = Pipeline(
        PipelineRecipe.model_validate(values | {"retriever": {"passages": tmp_path / "passages.jsonl"}, "max_new_tokens": 6})
    )
    pipeline.load()
    client = served(pipeline)
    questions = [f"Who made {film}?" for film in FILMS]
    alone = [ask(client, question).choices[0].message.content for question in questions]
    with ThreadPoolExecutor(4) as pool:
        together = [reply.choices[0].message.content for reply in pool.map(lambda question: ask(client, question), questions)]
    assert together == alone


def test_the_reply_is_json_that_any_client_reads(pipeline, served):
    pipeline.llm.token_logprob = float("-inf")
    client = served(pipeline)
    body = {"model": "rag", "messages": [{"role": "user", "content": "Who made Cedar Falls?"}]}
    text = client._client.post(f"{client.base_url}chat/completions", json=body).text
    assert json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.fixture
def behind(served):
    """Serve `direct` over an endpoint that answers with `answer`; returns a client of it."""

    def start(server):
        pipeline = Pipeline(PipelineRecipe(name="rag", decoder="direct", endpoint=ServedModelConfig(base_url=server.base_url, model="m")))
        pipeline.load()
        return served(pipeline)

    return start


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "withheld",
    [
        (400, {"error": {"message": "The prompt triggered the content management policy."}}),
        (200, chat_reply("", choices=[{"message": {"content": ""}, "finish_reason": "content_filter"}])),
        (200, chat_reply("I'm sorry, but I cannot help with that.")),
    ],
)
def test_an_answer_that_is_withheld_ends_as_filtered(behind, withheld, stream):
    with scripted(lambda body: (200, chat_reply("ok")) if prompt_of(body) == "Hi" else withheld) as server:
        reply = ask(behind(server), stream=stream)
        (ended,) = [choice.finish_reason for chunk in (reply if stream else [reply]) for choice in chunk.choices if choice.finish_reason]
    assert ended == "content_filter"


def test_an_account_that_runs_dry_is_an_error_until_it_is_filled(behind):
    refusal = (403, {"error": {"message": "Key limit exceeded", "code": 403}})
    answers = iter([(200, chat_reply("Cleo Marn")), refusal, refusal, refusal])
    with scripted(lambda body: next(answers, (200, chat_reply("Ben Orlow")))) as server:
        client = behind(server)
        assert ask(client).choices[0].message.content == "Cleo Marn"
        with pytest.raises(openai.InternalServerError, match="now refuses every request, even a tiny one: status 403: Key limit exceeded"):
            ask(client)
        assert ask(client).choices[0].message.content == "Ben Orlow"
