"""RA-ISF, Algorithm 1 branch by branch, with a scripted model and a scripted retriever."""

import asyncio
import re

import pytest

from infer.benchmark.reference.ra_isf import PlainSolver
from infer.decoders.ra_isf import Options, decode
from infer.session import Session
from refinery.contract.records import Passage, Question
from refinery.llms.fake import FakeLLM
from refinery.retrievers.fake import FakeRetriever
from refinery.tasks.relevance import IRRELEVANT, RELEVANT
from refinery.tasks.self_knowledge import KNOW, UNKNOW

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

    def __init__(self, *, known=(), relevant=None, decompositions=None, probs=None):
        self.known, self.relevant, self.decompositions = known, relevant or {}, decompositions or {}
        self.probs = probs or {}

    def __call__(self, text: str):
        kind = role(text)
        question = re.search(r"^(?:Question|The problem is): (.*)$", text, flags=re.MULTILINE)[1]
        if kind == "know":
            return self.probs.get(kind) or (KNOW if question in self.known else UNKNOW)
        if kind == "relevance":
            title = re.search(r"^Title: (.*)$", text, flags=re.MULTILINE)[1]
            return self.probs.get(kind) or (RELEVANT if title in self.relevant.get(question, ()) else IRRELEVANT)
        if kind == "decompose":
            return "".join(f"\n{i}. {sub}" for i, sub in enumerate(self.decompositions.get(question, []), 1))
        return f" {kind} answer"


def solve(model: Model, *, question: str = WHOLE, adapters=frozenset(), **options):
    llm, retriever = FakeLLM(model), FakeRetriever(lambda query: PASSAGES)
    asked = Question(id="q", text=question)
    session = Session(question=asked, llm=llm, retriever=retriever, passages_per_query=3, adapters=frozenset(adapters))
    return asyncio.run(decode(asked, session, Options(**options))), llm, retriever


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


def test_without_relevance_a_question_is_decomposed_at_once():
    model = Model(known=[DUNE], relevant={WHOLE: ["Dune"]}, decompositions={WHOLE: [DUNE]})
    prediction, llm, _ = solve(model, no_passage_relevance=True)
    assert prompts(llm, "passages") == []
    assert prediction.answer == solve(model.__class__(known=[DUNE], decompositions={WHOLE: [DUNE]}))[0].answer


def test_without_self_knowledge_a_known_question_is_looked_up():
    assert solve(Model(known=[DUNE], relevant={DUNE: ["Dune"]}), question=DUNE, no_self_knowledge=True)[2].calls == [DUNE]


def test_without_decomposition_irrelevant_passages_give_unknow():
    assert solve(Model(decompositions={WHOLE: [DUNE]}), no_decomposition=True)[0].answer == "Unknow"


@pytest.mark.parametrize(("threshold", "answer"), [(0.3, "direct answer"), (0.6, "direct answer"), (0.7, "Unknow")])
def test_a_question_is_known_from_the_threshold_on(threshold, answer):
    model = Model(probs={"know": {KNOW: 0.6, UNKNOW: 0.4}})
    assert solve(model, know_threshold=threshold)[0].answer == answer


@pytest.mark.parametrize(("threshold", "answer"), [(0.2, "passages answer"), (0.4, "passages answer"), (0.5, "Unknow")])
def test_a_passage_is_relevant_from_the_threshold_on(threshold, answer):
    model = Model(probs={"relevance": {RELEVANT: 0.4, IRRELEVANT: 0.6}})
    assert solve(model, relevance_threshold=threshold)[0].answer == answer


def test_equal_sub_questions_are_asked_once():
    _, llm, retriever = solve(Model(decompositions={WHOLE: [DUNE, "who  directed dune?", LYON]}, relevant={DUNE: ["Dune"]}), max_depth=1)
    assert retriever.calls == [WHOLE, DUNE, LYON]
    assert len(prompts(llm, "passages")) == 1
    assert prompts(llm, "synthesis")[0].count("Sub-answer: passages answer") == 2


def test_what_is_known_of_a_question_holds_at_every_depth():
    model = Model(decompositions={WHOLE: [DUNE, LYON], DUNE: [LYON]})
    _, llm, retriever = solve(model)
    assert sorted(retriever.calls) == sorted([WHOLE, DUNE, LYON])
    assert len(prompts(llm, "know")) == len(prompts(llm, "decompose")) == 3


def test_questions_that_decompose_into_each_other_end():
    prediction, _, retriever = solve(Model(decompositions={WHOLE: [DUNE, LYON], DUNE: [LYON], LYON: [DUNE]}))
    assert sorted(retriever.calls) == sorted([WHOLE, DUNE, LYON])
    assert prediction.answer == "synthesis answer"


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
    plain = PlainSolver(tiny_model, control_tokenizer, lambda query: PASSAGES, lambda question: [], max_depth=0, max_new_tokens=5)
    engine = HuggingFaceLLM(tiny_model, control_tokenizer)

    async def answer(question):
        session = Session(question, engine, FakeRetriever(lambda query: PASSAGES), 3, max_new_tokens=5)
        return (await decode(question, session, Options(max_depth=0))).answer

    async def answer_all():
        return await asyncio.gather(*map(answer, questions))

    assert asyncio.run(answer_all()) == [plain.solve(question.text) or "Unknow" for question in questions]


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
