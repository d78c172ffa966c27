"""An LLM behind a chat endpoint, over real HTTP to the demo's chat server."""

import asyncio
from collections.abc import Callable

import pytest

from refinery.contract.segments import Segment
from refinery.demo.teacher.server import ChatServer, Faults, serving
from refinery.errors import LLMError
from refinery.llms.base import Counters, Usage
from refinery.llms.build import build_llm
from refinery.llms.served.chat_llm import ChatLLM, GenerationRequest
from refinery.llms.served.endpoint import EndpointConfig, UnusableEndpoint


@pytest.fixture
def chat():
    """Ask a server that answers by a script: `chat(script, ask)` gives what the coroutine `ask(llm)` returns, and the server."""

    def run(script: Callable[[str], str], ask, *, faults: Faults | None = None, **config):
        async def asked(server: ChatServer):
            llm = build_llm(EndpointConfig(base_url=server.base_url, model="scripted", max_tries=2, **config))
            try:
                return await ask(llm)
            finally:
                await llm.close()

        with serving(script, faults=faults) as server:
            return asyncio.run(asked(server)), server

    return run


def generate(prompt: str, **values):
    return lambda llm: llm.context(prompt).generate(max_new_tokens=20, **values)


def test_it_writes_what_the_endpoint_replies(chat):
    generation, _ = chat(lambda text: f" reply to {text} ", generate("Lyon?"))
    assert (generation.text, generation.stopped_by) == ("reply to Lyon?", "stop")
    assert (generation.token_ids, generation.logprobs) == ([], [])


def test_a_stop_text_ends_the_reply(chat):
    assert chat(lambda text: "Lyon\nQuestion: b\n\nQuestion: c", generate("a", stop_texts=("\n\n", "\n")))[0].text == "Lyon"


def test_a_cut_reply_says_so(chat):
    assert chat(lambda text: "one two three four", generate("a"), faults=Faults(truncate_every=1))[0].stopped_by == "length"


def test_what_a_decoder_asks_for_is_sent():
    config = EndpointConfig(model="m", max_tokens=300, temperature=0.7, max_tokens_name="max_completion_tokens")
    body = GenerationRequest.of((("user", "a"),), 32, 1.0, ("\n",)).body(config)
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "a"}],
        "temperature": 1.0,
        "max_completion_tokens": 32,
        "stop": ["\n"],
    }


def test_the_endpoints_temperature_and_limit_hold_where_a_decoder_does_not_say_otherwise():
    body = GenerationRequest.of((("user", "a"),), 900, 0.0, ()).body(EndpointConfig(model="m", max_tokens=300, temperature=0.7))
    assert (body["temperature"], body["max_tokens"], "stop" in body) == (0.7, 300, False)


def test_text_after_a_reply_is_the_users_next_turn(chat):
    async def ask(llm: ChatLLM):
        context = llm.context("first").extend([Segment(" and more", "prompt")])
        reply = await context.generate(max_new_tokens=9)
        return reply.context.extend([Segment("second", "prompt")]).messages, context.messages

    messages, before = chat(lambda text: "reply", ask)[0]
    assert messages == (("user", "first and more"), ("assistant", "reply"), ("user", "second"))
    assert before == messages[:1]


def test_equal_requests_in_flight_are_sent_once_and_counted_for_each_question(chat):
    usages = [Usage(), Usage(), Usage()]

    async def ask(llm: ChatLLM) -> Counters:
        texts = ("two words", "two words", "another")
        contexts = [llm.context(text, usage=usage) for text, usage in zip(texts, usages, strict=True)]
        await asyncio.gather(*(context.generate(max_new_tokens=9) for context in contexts))
        return llm.counters

    counters, server = chat(lambda text: "a reply of five words", ask, faults=Faults(slow_seconds=0.05))
    assert server.requests == 2
    assert usages == [Usage(1, 2, 5), Usage(1, 2, 5), Usage(1, 1, 5)]
    assert (counters.forwards, counters.prefill_tokens, counters.decode_tokens) == (2, 3, 10)


@pytest.mark.parametrize("values", [{"temperature": 0.5}, {}], ids=["by the decoder", "by the endpoint"])
def test_samples_are_drawn_one_by_one(chat, values):
    async def ask(llm: ChatLLM) -> None:
        await asyncio.gather(*(llm.context("a").generate(max_new_tokens=9, **values) for _ in range(3)))

    assert chat(lambda text: "b", ask, faults=Faults(slow_seconds=0.05), temperature=0.0 if values else 1.0)[1].requests == 3


def test_a_request_whose_first_asker_gives_up_still_serves_its_twin(chat):
    async def ask(llm: ChatLLM) -> str:
        first, second = (asyncio.ensure_future(llm.context("a").generate(max_new_tokens=9)) for _ in range(2))
        await asyncio.sleep(0.02)
        first.cancel()
        return (await second).text

    assert chat(lambda text: "b", ask, faults=Faults(slow_seconds=0.1))[0] == "b"


def test_a_withheld_reply_is_empty_and_the_others_go_on(chat, caplog):
    async def ask(llm: ChatLLM):
        return [await llm.context(text).generate(max_new_tokens=9) for text in ("a", "b")]

    kept, withheld = chat(lambda text: text, ask, faults=Faults(bad_request_every=2))[0]
    assert (kept.text, kept.stopped_by, withheld.text, withheld.stopped_by) == ("a", "stop", "", "refused")
    assert "withheld a reply: status 400" in caplog.text


def test_an_endpoint_that_fails_every_try_ends_the_run(chat):
    with pytest.raises(UnusableEndpoint, match=r"\(model 'scripted'\) cannot be used: status 500"):
        chat(lambda text: text, generate("a"), faults=Faults(server_error_every=1))


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (lambda llm: asyncio.run(llm.context("a").score([Segment("b", "prompt")])), "log-probabilities"),
        (lambda llm: llm.context([Segment("[A_Response]", "control_token")]), "control tokens"),
        (lambda llm: llm.tokenizer, "control tokens"),
        (lambda llm: llm.context("a").token_ids, "token ids"),
    ],
)
def test_what_a_chat_cannot_give_names_the_model_that_can(use, what):
    needed = (
        "This decoder needs a causal model on this machine, named in `llm` instead of `endpoint`,"
        " or one behind a completions server (vLLM): then name its `tokenizer` in `endpoint`."
    )
    with pytest.raises(LLMError) as raised:
        use(ChatLLM(EndpointConfig(base_url="http://127.0.0.1:9/v1", model="scripted")))
    assert str(raised.value) == f"endpoint model 'scripted' is used by chat, which has no {what}. {needed}"
