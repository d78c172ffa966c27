"""Every decoder that only prompts, with the demo's teacher behind it over real HTTP and a real search over the demo's worlds."""

import asyncio
import random
from importlib import import_module
from typing import Any

import pytest
from helpers.demo_teacher import COMMON_QUESTIONS, PASSAGES, WORLDS, config, several

from infer.session import Session
from refinery.contract.records import Question
from refinery.contract.trace import Prediction
from refinery.demo.teacher.replies import REFUSAL
from refinery.demo.teacher.server import ChatServer
from refinery.demo.world.questions import QUESTION_TYPES
from refinery.llms.build import build_llm
from refinery.metrics.squad import exact_match
from refinery.retrievers.base import Retriever
from refinery.retrievers.bm25 import Bm25
from refinery.retrievers.fake import FakeRetriever

COMMON = [question for question in COMMON_QUESTIONS if question.type == "single_hop"]
ONE_SEARCH = ("single_hop", "comparison", "ambiguous")
MIGRES = {"relevance_threshold": 0.5}  # BM25 scores over five short passages are low
# Each method with the types of question that it answers without fail.
METHODS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("rag", {}, ONE_SEARCH),
    ("chain_of_thought", {}, ONE_SEARCH),
    ("chain_of_note", {}, ONE_SEARCH),
    ("plan_and_solve", {}, ONE_SEARCH),
    ("self_criticism", {}, ONE_SEARCH),
    ("least_to_most", {}, QUESTION_TYPES),
    ("alce", {}, ONE_SEARCH),
    ("alce", {"strategy": "summ"}, ONE_SEARCH),
    ("alce", {"strategy": "snippet"}, ONE_SEARCH),
    ("alce", {"strategy": "rerank", "entailment": "llm"}, ONE_SEARCH),
    ("iter_retgen", {}, (*ONE_SEARCH, "two_hop")),
    ("iter_retgen", {"iterations": 3}, QUESTION_TYPES),
    ("ircot", {}, QUESTION_TYPES),
    ("react", {}, QUESTION_TYPES),
    ("self_ask", {}, QUESTION_TYPES),
    ("self_ask", {"examples": "few"}, QUESTION_TYPES),
    ("re_thinking", {}, (*ONE_SEARCH, "two_hop")),
    ("re_thinking", {"relevance": "filter", "judge_second_retrieval": True}, (*ONE_SEARCH, "two_hop")),
    ("re_thinking", {"skip_when_complete": False}, (*ONE_SEARCH, "two_hop")),
    ("re_thinking", {"no_filtering": True}, (*ONE_SEARCH, "two_hop")),
    ("re_thinking", {"no_rethinking": True}, ONE_SEARCH),
    ("re_thinking", {"no_reinforcing": True}, ONE_SEARCH),
    ("migres", MIGRES, QUESTION_TYPES),
    ("migres", MIGRES | {"examples": "few"}, QUESTION_TYPES),
    ("migres", MIGRES | {"entailment": "llm"}, QUESTION_TYPES),
    ("migres", MIGRES | {"compression": "summ"}, QUESTION_TYPES),
    ("migres", MIGRES | {"compression": "snippet"}, QUESTION_TYPES),
    ("migres", {"reranker": "none", "compression": "none"}, QUESTION_TYPES),
]
IDS = [" ".join([name, *map(str, options.values())]) for name, options, _ in METHODS]


def answer_all(
    server: ChatServer, name: str, options: dict[str, Any], questions: list[Question], search: Retriever | None
) -> list[Prediction]:
    decoder = import_module(f"infer.decoders.{name}")

    async def run() -> list[Prediction]:
        llm = build_llm(config(server))

        async def one(question: Question) -> Prediction:
            tools = Session(question=question, llm=llm, retriever=search, passages_per_query=5)
            return await decoder.decode(question, tools, decoder.Options(**options))

        try:
            return await asyncio.gather(*map(one, questions))
        finally:
            await llm.close()

    return asyncio.run(run())


def missed(questions: list[Question], predictions: list[Prediction]) -> list[tuple[str, str]]:
    pairs = zip(questions, predictions, strict=True)
    return [(question.text, prediction.answer) for question, prediction in pairs if not exact_match(prediction.answer, question.answers)]


def faults(predictions: list[Prediction]) -> list[str | None]:
    return [step.text for prediction in predictions for step in prediction.trace if step.name == "fault" or step.text == REFUSAL]


@pytest.mark.parametrize(("name", "options", "types"), METHODS, ids=IDS)
def test_a_method_answers_the_questions_that_it_is_made_for(
    server: ChatServer, bm25: Bm25, name: str, options: dict[str, Any], types: tuple[str, ...]
) -> None:
    questions = [*COMMON, *(question for kind in types for question in several(kind))]
    predictions = answer_all(server, name, options, questions, bm25)
    assert missed(questions, predictions) == []
    assert faults(predictions) == []


@pytest.mark.parametrize("name", [name for name, options, types in METHODS if types == ONE_SEARCH and not options])
def test_one_search_with_the_question_is_not_enough_for_a_chain(server: ChatServer, bm25: Bm25, name: str) -> None:
    questions = several("two_hop")
    assert {prediction.answer for prediction in answer_all(server, name, {}, questions, bm25)} == {"unknown"}


@pytest.mark.parametrize("name", ["direct", "chain_of_thought", "plan_and_solve", "self_criticism", "least_to_most"])
def test_without_a_search_it_knows_the_common_world_alone(server: ChatServer, name: str) -> None:
    rare = [question for kind in QUESTION_TYPES for question in several(kind)]
    assert missed(COMMON, answer_all(server, name, {}, COMMON, None)) == []
    assert {prediction.answer for prediction in answer_all(server, name, {}, rare, None)} == {"unknown"}


@pytest.mark.parametrize(("name", "options"), [method[:2] for method in METHODS], ids=IDS)
def test_shown_other_passages_a_method_answers_unknown(server: ChatServer, name: str, options: dict[str, Any]) -> None:
    questions = [question for kind in QUESTION_TYPES for question in several(kind)[::2]]  # one of each relation or chain
    needed = {id for question in questions for id in question.supporting or []}
    others = [passage for id, passage in PASSAGES.items() if id.startswith("test:") and id not in needed]
    search = FakeRetriever(lambda query: random.Random(query).sample(others, 5))
    assert {prediction.answer for prediction in answer_all(server, name, options, questions, search)} == {"unknown"}


def test_migres_asks_for_both_things_that_are_compared(server: ChatServer) -> None:
    question = several("comparison")[0]
    country = PASSAGES[WORLDS["test"].of_kind("country")[0].id]
    prediction = answer_all(server, "migres", MIGRES | {"reranker": "none"}, [question], FakeRetriever(lambda query: [country]))[0]
    searched = [step.question for step in prediction.trace if step.name == "retrieve"]
    assert searched[:3] == [question.text, *(sub.text for sub in question.decomposition or [])]
