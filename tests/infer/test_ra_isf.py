"""RA-ISF, Algorithm 1 branch by branch, with a scripted model and a scripted retriever."""

import asyncio
import re

import pytest

from infer.decoders.ra_isf import Options, decode
from infer.tools import Tools
from refinery.llms.fake import FakeLLM
from refinery.records import Passage, Question
from refinery.retrievers.fake import FakeRetriever
from refinery.sub_models import IRRELEVANT, KNOW, RELEVANT, UNKNOW

WHOLE = "Where was the director of Dune born?"
DUNE, LYON = "Who directed Dune?", "Where was Maria Torvel born?"
FILM = Passage(id="film", title="Dune", text="Dune is a film directed by Maria Torvel.")
PERSON = Passage(id="person", title="Maria Torvel", text="Maria Torvel was born in Lyon.")
OTHER = Passage(id="other", title="Oslo", text="Oslo is a city.")
PASSAGES = [FILM, PERSON, OTHER]
ROLES = {
    "Can you use your own knowledge": "know",
    "Please assess whether": "relevance",
    "Please break down": "decompose",
    "Using the knowledge from": "passages",
    "Base on the sub-question": "synthesis",
    "Give the answer": "direct",
}


def role(text: str) -> str:
    return next(name for opening, name in ROLES.items() if text.startswith(opening))


class Model:
    """Scripts the five roles: what is known, which titles answer which question, and how a question is decomposed."""

    def __init__(self, *, known=(), relevant=None, decompositions=None, shares=None):
        self.known, self.relevant, self.decompositions = known, relevant or {}, decompositions or {}
        self.shares = shares or {}

    def __call__(self, text: str):
        kind = role(text)
        question = re.search(r"^(?:Question|The problem is): (.*)$", text, flags=re.MULTILINE)[1]
        if kind == "know":
            return self.shares.get(kind) or (KNOW if question in self.known else UNKNOW)
        if kind == "relevance":
            title = re.search(r"^Title: (.*)$", text, flags=re.MULTILINE)[1]
            return self.shares.get(kind) or (RELEVANT if title in self.relevant.get(question, ()) else IRRELEVANT)
        if kind == "decompose":
            return "".join(f"\n{i}. {sub}" for i, sub in enumerate(self.decompositions.get(question, []), 1))
        return f" {kind} answer"


def solve(model: Model, *, question: str = WHOLE, adapters=frozenset(), **options):
    llm, retriever = FakeLLM(model), FakeRetriever(lambda query: PASSAGES)
    asked = Question(id="q", text=question)
    tools = Tools(question=asked, llm=llm, retriever=retriever, passages_per_query=3, adapters=frozenset(adapters))
    return asyncio.run(decode(asked, tools, Options(**options))), llm, retriever


def prompts(llm: FakeLLM, kind: str) -> list[str]:
    return [call.text for call in llm.calls if role(call.text) == kind]


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
    assert "Sub-question: Where was passages answer born?" in prompts(llm, "synthesis")[0]


def test_independent_sub_questions_keep_their_references():
    _, _, retriever = solve(Model(**TWO_HOPS), sub_questions="independent")
    assert set(retriever.calls) == {WHOLE, DUNE, "Where was #1 born?"}


class Endless(Model):
    """Knows nothing, and decomposes every question into a new one."""

    def __call__(self, text: str):
        if role(text) == "decompose":
            depth = text.count("?")
            return f"\n1. {'Who' + '?' * (depth + 1)}"
        return super().__call__(text)


@pytest.mark.parametrize("max_depth", [0, 1, 3])
def test_the_depth_limit_gives_unknow(max_depth):
    prediction, llm, retriever = solve(Endless(), question="Who?", max_depth=max_depth)
    assert len(retriever.calls) == max_depth + 1
    assert prediction.answer == ("Unknow" if max_depth == 0 else "synthesis answer")
    assert max_depth == 0 or "Sub-answer: Unknow\n" in prompts(llm, "synthesis")[0]
    assert [step.depth for step in prediction.trace if step.name == "unresolved"] == [max_depth]


@pytest.mark.parametrize(
    "decompositions",
    [{}, {WHOLE: [WHOLE]}, {WHOLE: [DUNE], DUNE: [WHOLE]}],
    ids=["into nothing", "into itself", "into what it came from"],
)
def test_a_decomposition_that_leads_nowhere_ends(decompositions):
    prediction, _, retriever = solve(Model(decompositions=decompositions))
    assert len(retriever.calls) == max(1, len(decompositions))
    assert prediction.trace[-1].text == "Unknow" or prediction.answer == "synthesis answer"


def test_an_unresolved_question_may_be_guessed_from_its_passages():
    prediction, llm, _ = solve(Model(), unresolved="from_passages")
    assert prediction.answer == "passages answer"
    assert all(passage.text in prompts(llm, "passages")[0] for passage in PASSAGES)


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


def test_without_relevance_every_passage_is_read():
    prediction, llm, _ = solve(Model(), no_passage_relevance=True)
    assert prediction.answer == "passages answer"
    assert all(passage.text in prompts(llm, "passages")[0] for passage in PASSAGES)


def test_without_self_knowledge_a_known_question_is_looked_up():
    assert solve(Model(known=[DUNE], relevant={DUNE: ["Dune"]}), question=DUNE, no_self_knowledge=True)[2].calls == [DUNE]


def test_without_decomposition_irrelevant_passages_give_unknow():
    assert solve(Model(decompositions={WHOLE: [DUNE]}), no_decomposition=True)[0].answer == "Unknow"


@pytest.mark.parametrize(("threshold", "answer"), [(0.3, "direct answer"), (0.6, "direct answer"), (0.7, "Unknow")])
def test_a_question_is_known_from_the_threshold_on(threshold, answer):
    model = Model(shares={"know": {KNOW: 0.6, UNKNOW: 0.4}})
    assert solve(model, know_threshold=threshold)[0].answer == answer


@pytest.mark.parametrize(("threshold", "answer"), [(0.2, "passages answer"), (0.4, "passages answer"), (0.5, "Unknow")])
def test_a_passage_is_relevant_from_the_threshold_on(threshold, answer):
    model = Model(shares={"relevance": {RELEVANT: 0.4, IRRELEVANT: 0.6}})
    assert solve(model, relevance_threshold=threshold)[0].answer == answer


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
