"""RA-ISF, Algorithm 1 branch by branch, with a scripted model and a scripted retriever."""

import asyncio
import re

import pytest
from helpers.ra_isf_script import DUNE, LYON, PASSAGES, WHOLE, Model, prompts, role, solve

from infer.decoders.ra_isf import Options, decode
from infer.session import Session
from refinery.contract.records import Question
from refinery.llms.fake import FakeLLM
from refinery.retrievers.fake import FakeRetriever
from refinery.tasks.relevance import IRRELEVANT, RELEVANT
from refinery.tasks.self_knowledge import KNOW, UNKNOW
from tests.reference.ra_isf import LlamaModels, problem_solving

TWO_HOPS = {
    "relevant": {DUNE: ["Dune"], LYON: ["Maria Torvel"]},
    "decompositions": {WHOLE: [DUNE, "Where was #1 born?"]},
}


def test_a_known_question_is_answered_without_retrieval():
    prediction, llm, retriever = solve(Model(known=[WHOLE]))
    assert (prediction.answer, retriever.calls, len(llm.calls)) == ("direct answer", [], 2)


def test_only_the_relevant_passages_are_in_the_prompt():
    prediction, llm, retriever = solve(Model(relevant={DUNE: ["Dune", "Oslo"]}), question=DUNE)
    (prompt,) = prompts(llm, "passages")
    assert (prediction.answer, retriever.calls) == ("passages answer", [DUNE])
    assert [passage.text in prompt for passage in PASSAGES] == [True, False, True]


def test_answer_from_all_puts_every_passage_into_the_prompt():
    _, llm, _ = solve(Model(relevant={DUNE: ["Dune"]}), question=DUNE, answer_from="all")
    assert all(passage.text in prompts(llm, "passages")[0] for passage in PASSAGES)


def test_every_passage_is_judged_on_its_own():
    _, llm, _ = solve(Model(), question=DUNE)
    assert [re.findall(r"^Title: (.*)$", text, flags=re.MULTILINE) for text in prompts(llm, "relevance")] == [[p.title] for p in PASSAGES]


def test_irrelevant_passages_lead_to_decomposition_and_synthesis():
    prediction, llm, retriever = solve(Model(known=[DUNE, LYON], decompositions={WHOLE: [DUNE, LYON]}))
    (prompt,) = prompts(llm, "synthesis")
    assert prediction.answer == "synthesis answer"
    assert retriever.calls == [WHOLE]
    assert f"Question: {WHOLE}\nSub-question: {DUNE}\nSub-answer: direct answer\nSub-question: {LYON}\nSub-answer: direct answer" in prompt


def test_sequential_sub_questions_get_the_answers_before_them():
    _, llm, retriever = solve(Model(**TWO_HOPS), sub_questions="sequential")
    assert retriever.calls == [WHOLE, DUNE, "Where was passages answer born?"]
    assert "Sub-question: Where was passages answer born?" in prompts(llm, "synthesis")[-1]


def test_independent_sub_questions_keep_their_references():
    _, _, retriever = solve(Model(**TWO_HOPS), sub_questions="independent")
    assert set(retriever.calls) == {WHOLE, DUNE, "Where was #1 born?"}


@pytest.mark.parametrize(
    ("ablation", "never"),
    [("no_self_knowledge", "know"), ("no_passage_relevance", "relevance"), ("no_decomposition", "decompose")],
)
def test_an_ablation_never_asks_its_sub_model(ablation, never):
    model = Model(decompositions={WHOLE: [DUNE]})
    asked = {role(call.text) for call in solve(model)[1].calls}
    ablated = {role(call.text) for call in solve(model, **{ablation: True})[1].calls}
    assert never in asked
    assert never not in ablated


def test_without_self_knowledge_a_known_question_is_looked_up():
    assert solve(Model(known=[DUNE], relevant={DUNE: ["Dune"]}), question=DUNE, no_self_knowledge=True)[2].calls == [DUNE]


@pytest.mark.parametrize(("threshold", "answer"), [(0.3, "direct answer"), (0.6, "direct answer"), (0.7, "synthesis answer")])
def test_a_question_is_known_from_the_threshold_on(threshold, answer):
    model = Model(probs={"know": {KNOW: 0.6, UNKNOW: 0.4}})
    assert solve(model, know_threshold=threshold)[0].answer == answer


@pytest.mark.parametrize(("threshold", "answer"), [(0.2, "passages answer"), (0.4, "passages answer"), (0.5, "synthesis answer")])
def test_a_passage_is_relevant_from_the_threshold_on(threshold, answer):
    model = Model(probs={"relevance": {RELEVANT: 0.4, IRRELEVANT: 0.6}})
    assert solve(model, relevance_threshold=threshold)[0].answer == answer


def test_a_model_that_writes_nothing_still_gives_an_answer():
    llm = FakeLLM(lambda text: KNOW if role(text) == "know" else "")
    asked = Question(id="q", text=WHOLE)
    session = Session(question=asked, llm=llm, retriever=FakeRetriever(lambda query: PASSAGES), passages_per_query=3)
    assert asyncio.run(decode(asked, session, Options())).answer == "Unknow"


@pytest.mark.parametrize(
    ("reply", "kept"), [("No.", [0, 0, 0]), ("Relevant paragraphs:\n[2] Maria Torvel ...", [0, 1, 0]), ("[1], [9]", [1, 0, 0])]
)
def test_a_listwise_judge_names_the_relevant_passages_in_one_call(reply, kept):
    def script(text: str):
        return reply if "additional pieces of knowledge" in text else UNKNOW if role(text) == "know" else f" {role(text)} answer"

    llm, asked = FakeLLM(script), Question(id="q", text=WHOLE)
    session = Session(question=asked, llm=llm, retriever=FakeRetriever(lambda query: PASSAGES), passages_per_query=3)
    prediction = asyncio.run(decode(asked, session, Options(relevance="listwise", no_decomposition=True)))
    read = [text for text in llm.texts("generate") if text.startswith("Using the knowledge")]
    assert [int(any(p.text in text for text in read)) for p in PASSAGES] == kept
    assert prediction.answer == ("passages answer" if any(kept) else "Unknow")


def test_a_role_may_be_played_by_a_model_of_its_own():
    judge, base = FakeLLM(lambda text: KNOW), FakeLLM(lambda text: f" {role(text)} answer")
    asked = Question(id="q", text=WHOLE)
    adapters = frozenset({"self_knowledge"})
    session = Session(asked, base, FakeRetriever(lambda query: PASSAGES), 3, adapters=adapters, sub_models={"self_knowledge": judge})
    assert asyncio.run(decode(asked, session, Options())).answer == "direct answer"
    assert [(role(call.text), call.adapter) for call in judge.calls] == [("know", None)]
    assert [role(call.text) for call in base.calls] == ["direct"]


def test_the_engine_equals_one_call_after_the_other(tiny_model, control_tokenizer):
    from refinery.llms.engine.huggingface import HuggingFaceLLM

    questions = [Question(id=str(i), text=f"Who directed film {i}?") for i in range(6)]
    plain = LlamaModels(tiny_model, control_tokenizer, lambda query: PASSAGES, lambda question: [], max_new_tokens=5)
    engine = HuggingFaceLLM(tiny_model, control_tokenizer)

    async def answer(question):
        session = Session(question, engine, FakeRetriever(lambda query: PASSAGES), 3, max_new_tokens=5)
        return (await decode(question, session, Options(max_depth=0))).answer

    async def answer_all():
        return await asyncio.gather(*map(answer, questions))

    assert asyncio.run(answer_all()) == [problem_solving(question.text, 0, plain, max_depth=0) or "Unknow" for question in questions]


def test_each_role_is_played_by_its_adapter_and_answers_by_the_base():
    _, llm, _ = solve(Model(known=[DUNE], decompositions={WHOLE: [DUNE]}), adapters={"self_knowledge", "relevance", "decomposition"})
    played = {role(call.text): call.adapter for call in llm.calls}
    assert played == {
        "know": "self_knowledge",
        "relevance": "relevance",
        "decompose": "decomposition",
        "direct": None,
        "synthesis": None,
    }


def test_the_trace_and_the_cost_tell_the_whole_story():
    prediction, llm, retriever = solve(Model(**TWO_HOPS), sub_questions="sequential")
    assert prediction.cost.calls == len(llm.calls)
    assert prediction.cost.retrievals == len(retriever.calls) == sum(step.name == "retrieve" for step in prediction.trace)
    assert {step.question for step in prediction.trace if step.depth == 1} == {DUNE, "Where was passages answer born?"}
