"""Decoders that only prompt, with a model behind a chat server over real HTTP."""

import asyncio
import json
import re

import pytest

from infer.decoders import migres, re_thinking
from infer.session import Session
from refinery.contract.records import Passage, Question
from refinery.contract.trace import Prediction
from refinery.demo.teacher.server import ChatServer, Faults, serving
from refinery.errors import LLMError
from refinery.llms.build import build_llm
from refinery.llms.served.endpoint import EndpointConfig
from refinery.retrievers.bm25 import Bm25

NAMES = ["alder", "birch", "cedar", "maple"]
QUESTIONS = [Question(id=name, text=f"Where was the director of film {name} born?") for name in NAMES]
PASSAGES = [
    *(Passage(id=f"film {name}", title=name, text=f"It is a film. Its director is Maria {name}son.") for name in NAMES),
    *(Passage(id=f"maria {name}", title=f"Maria {name}son", text=f"Maria {name}son was born in {name}town.") for name in NAMES),
]


def reply(prompt: str) -> str:
    """A model that reads one fact from whatever it is shown."""
    name = re.search(r"of film (\w+) born|Who is (\w+)son", prompt).expand(r"\1\2")
    city = f"{name}town" if f"born in {name}town" in prompt else ""
    if prompt.startswith("Given the following"):
        return json.dumps(
            {"useful_information": [{"info": f"She was born in {city}." if city else "A director.", "support_passages": [1]}]}
        )
    if prompt.startswith("Answer the Question based"):
        return json.dumps({"answer": city or "unanswerable", "missing_information": "Where she was born."})
    if prompt.startswith("Based on the Original Question"):
        return json.dumps({"queries": [f"Who is {name}son?"]})
    return f"Who is {name}son?" if prompt.endswith("Sub-query:") else city or "Nothing."


def answer_all(decoder, *, faults: Faults | None = None, **options) -> tuple[list[Prediction], ChatServer]:
    async def run(url: str) -> list[Prediction]:
        llm = build_llm(EndpointConfig(base_url=url, model="scripted"))
        index = Bm25(PASSAGES)

        async def one(question: Question) -> Prediction:
            session = Session(question=question, llm=llm, retriever=index, passages_per_query=5)
            return await decoder.decode(question, session, decoder.Options(**options))

        try:
            return await asyncio.gather(*map(one, QUESTIONS))
        finally:
            await llm.close()

    with serving(reply, faults=faults) as server:
        return asyncio.run(run(server.base_url)), server


SYSTEMS = [(re_thinking, {}), (migres, {"relevance_threshold": 0.1})]


@pytest.mark.parametrize(("decoder", "options"), SYSTEMS, ids=["re_thinking", "migres"])
def test_every_question_is_answered_and_every_call_counted(decoder, options):
    predictions, server = answer_all(decoder, **options)
    assert [prediction.answer for prediction in predictions] == [f"{name}town" for name in NAMES]
    assert sum(prediction.cost.calls for prediction in predictions) == server.requests
    assert all(prediction.cost.prefill_tokens > prediction.cost.decode_tokens > 0 for prediction in predictions)


FAULTS = {"refuse_every": "refused", "truncate_every": "truncated", "malform_every": "malformed", "bad_request_every": "refused"}


@pytest.mark.parametrize(("decoder", "options"), SYSTEMS, ids=["re_thinking", "migres"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_misbehaves_costs_no_question_its_place(decoder, options, fault):
    every = 7 if fault == "bad_request_every" else 3  # a tiny request that finds out whose fault it is must not be refused too often
    predictions, _ = answer_all(decoder, faults=Faults(**{fault: every}), **options)
    assert [prediction.question_id for prediction in predictions] == [question.id for question in QUESTIONS]
    counted = {step.text.partition(":")[0] for prediction in predictions for step in prediction.trace if step.name == "fault"}
    # A malformed reply is asked for again, and is a fault only where the second one is struck too.
    assert counted - {"repeated"} in ({FAULTS[fault]}, set())


def test_a_decoder_that_reads_probabilities_is_told_which_model_it_needs():
    from infer.decoders import rq_rag

    with pytest.raises(LLMError, match="used by chat, which has no .* needs a causal model on this machine"):
        answer_all(rq_rag)
