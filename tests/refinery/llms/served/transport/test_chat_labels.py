"""Labels out of chats: of the log-probabilities that an endpoint gives, or of the words of its replies."""

import asyncio
import math

import pytest
from helpers.scripted_server import ScriptedServer, scripted

from infer.decoders import ra_isf
from infer.session import Session
from refinery.contract.records import Passage, Question
from refinery.demo.teacher.server import serving
from refinery.llms.build import build_llm
from refinery.llms.served.endpoint import ServedModelConfig
from refinery.llms.served.transport.chat_labels import LabelReply, label_probs_of, mean_probs
from refinery.retrievers.fake import FakeRetriever

LABELS = (" know", " unknow")


def reply(text: str, first=None) -> LabelReply:
    return LabelReply(text, "stop", "r", 1, 1, first_logprobs=first)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("know", " know"),
        ("Unknow.", " unknow"),
        ("I do not know", " unknow"),
        ("unknown", " unknow"),
        ("**know**", " know"),
        ("The label is: know", " know"),
    ],
)
def test_a_label_is_read_out_of_the_words(text, label):
    assert label_probs_of(reply(text), LABELS) == {other: float(other == label) for other in LABELS}


@pytest.mark.parametrize("text", ["", "Lyon", "My knowledge ends here", "I know the town, but the year is unknown.", "know or unknow"])
def test_a_reply_without_a_label_or_with_two_has_no_share_for_any(text):
    assert label_probs_of(reply(text), LABELS) == {" know": 0.0, " unknow": 0.0}


def test_the_first_tokens_probabilities_are_taken_where_they_are_given():
    probs = label_probs_of(reply("know", (("Know", math.log(0.5)), ("un", math.log(0.3)), (" know", math.log(0.1)))), LABELS)
    assert probs == pytest.approx({" know": 2 / 3, " unknow": 1 / 3})


def test_a_first_token_that_belongs_to_no_label_leaves_it_to_the_words():
    assert label_probs_of(reply("It is unknow", (("It", math.log(0.9)), ("know", math.log(0.05)))), LABELS)[" unknow"] == 1.0


def test_samples_without_a_label_do_not_count():
    assert mean_probs([{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 1.0}]) == {"a": 0.5, "b": 0.5}


def knowing(logprobs: str):
    """A chat endpoint that answers "know"; with `logprobs`, without them, or refusing to be asked for them."""

    def answer(body):
        if logprobs == "refused" and body.get("logprobs"):
            return 400, {"error": {"message": "logprobs is not supported"}}
        choice = {"message": {"content": "know"}, "finish_reason": "stop"}
        if logprobs == "given":
            top = [{"token": "know", "logprob": math.log(0.8)}, {"token": "un", "logprob": math.log(0.2)}]
            choice["logprobs"] = {"content": [{"token": "know", "logprob": math.log(0.8), "top_logprobs": top}]}
        return 200, {"choices": [choice]}

    return scripted(answer)


def ask_labels(server: ScriptedServer, times: int = 1, **values):
    """What `label_probs` gives, `times` over, and the record of what the endpoint can do."""

    async def ask():
        try:
            return [await llm.context(f"q{i}").label_probs(LABELS) for i in range(times)]
        finally:
            await llm.close()

    llm = build_llm(ServedModelConfig(base_url=server.base_url, model="m", **values))
    return asyncio.run(ask()), llm.record()


@pytest.mark.parametrize(("logprobs", "share", "requests"), [("given", 0.8, 2), ("ignored", 1.0, 2), ("refused", 1.0, 4)])
def test_an_endpoint_is_asked_for_log_probabilities_until_it_refuses_them(logprobs, share, requests):
    with knowing(logprobs) as server:
        found, record = ask_labels(server, times=2)
    assert [probs[" know"] for probs in found] == [pytest.approx(share)] * 2
    assert len(server.bodies) == requests  # with a tiny one after the refusal
    assert record["label_logprobs"] is (logprobs == "given")


def test_a_label_may_be_the_share_of_samples():
    with knowing("ignored") as server:
        assert ask_labels(server, label_samples=3, temperature=0.7)[0] == [{" know": 1.0, " unknow": 0.0}]
    assert [body["temperature"] for body in server.bodies] == [0.7] * 3


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"label_samples": 3}, "greedy replies are all the same"),
        ({"label_samples": 3, "temperature": 0.7, "tokenizer": "t"}, "leave out one of the two"),
        ({"chat_template": "none"}, "applies its model's own template"),
    ],
)
def test_what_would_have_no_effect_is_refused(values, told):
    with pytest.raises(ValueError, match=told):
        ServedModelConfig(model="m", **values)


def test_ra_isf_runs_with_a_chat_model_in_every_role():
    def model(prompt: str) -> str:
        if "know if you know" in prompt:
            return "unknow"
        if "relevant to the question" in prompt:
            return "It is relevant." if "Torvel" in prompt else "irrelevant"
        return "Lyon"

    film = Passage(id="film", title="Dune", text="Dune was directed by Maria Torvel.")
    other = Passage(id="other", title="Iron Raven", text="A film of 1984.")

    async def solve():
        try:
            values = {"retriever": FakeRetriever(lambda query: [film, other]), "passages_per_query": 2}
            tools = Session(question=Question(id="q", text="Where was the director of Dune born?"), llm=llm, **values)
            return await ra_isf.decode(tools.question, tools, ra_isf.Options())
        finally:
            await llm.close()

    with serving(model) as server:
        llm = build_llm(ServedModelConfig(base_url=server.base_url, model="chat"))
        prediction = asyncio.run(solve())
    judged = {step.text: step.probabilities[" relevant"] for step in prediction.trace if step.name == "relevance"}
    assert (prediction.answer, judged) == ("Lyon", {"Dune": 1.0, "Iron Raven": 0.0})
