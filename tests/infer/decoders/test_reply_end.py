"""A base model that has answered goes on with a question of its own; by no decoder is that an answer, a query or a prompt's text."""

import asyncio
import importlib
import json

import pytest

from infer.decoders import ra_isf
from infer.session import Session
from refinery.contract.records import KnowledgeLabel, Passage, Question, write_records
from refinery.llms.fake import FakeLLM
from refinery.metrics.squad import exact_match
from refinery.prompts.render import render_prompt
from refinery.prompts.stops import split_reply
from refinery.retrievers.fake import FakeRetriever
from refinery.tasks.relevance import RELEVANT
from refinery.tasks.self_knowledge import KNOW, UNKNOW, knowledge_prompt

QUERY = "Where was the director of Dune born?"
FILM = Passage(id="film", title="Dune", text="Dune is a film directed by Maria Torvel.")
PERSON = Passage(id="person", title="Maria Torvel", text="Maria Torvel was born in Lyon.")
# Every form that a decoder reads an answer, a query or an action in.
ON = (
    "\n\nQuestion: Who made Zork?\nAre follow up questions needed here: Yes.\nFollow up: Who is Zork?\n"
    "1. Where is Zork?\nThought: Zork.\nAction: Finish[Zork]\nSo the final answer is: Zork\nAnswer: Zork. The answer is Zork."
)
PARTS = "1. Who directed Dune?\n2. Where was Maria Torvel born?"
# By decoder what it is told in turn before the model goes on, and how many searches it makes.
SAID = {
    "direct": (["Lyon"], 0),
    "rag": (["Lyon"], 1),
    "chain_of_thought": (["Maria directed it. The answer is Lyon."], 1),
    "chain_of_note": (["Passage 1: Dune: she directed it. The answer is Lyon."], 1),
    "least_to_most": ([PARTS, "The answer is Maria Torvel", "The answer is Lyon", "The answer is Lyon"], 3),
    "self_ask": (["Yes.\nFollow up: Who directed Dune?", "Maria Torvel.\nSo the final answer is: Lyon"], 1),
    "ircot": (["Maria Torvel directed it", "So the answer is: Lyon", "The answer is Lyon"], 2),
    "iter_retgen": (["It is Maria Torvel.", "The answer is Lyon."], 2),
    "react": (["I need her.\nAction: Search[Dune]", "I know.\nAction: Finish[Lyon]"], 1),
    "plan_and_solve": (["Plan: find her. The answer is Lyon."], 1),
    "self_criticism": (["The answer is Oslo.", "Oslo is wrong.", "The answer is Lyon."], 1),
    "alce": (["She was born in Lyon [1]. The answer is Lyon [1]."], 1),
    "replug": (["Lyon"], 1),
    "skr": (["Lyon"], 1),
}


def decode(decoder, replies, *, goes_on=lambda prompt: "", **options):
    """What the decoder makes of replies that come in turn, and a model and a search that remember what they were asked."""
    module, said = importlib.import_module(f"infer.decoders.{decoder}"), iter(replies)
    llm, searched = FakeLLM(lambda text: next(said) + goes_on(text)), FakeRetriever(lambda query: [PERSON] if "Torvel" in query else [FILM])
    session = Session(question=Question(id="q", text=QUERY), llm=llm, retriever=searched, passages_per_query=3, max_new_tokens=400)
    return asyncio.run(module.decode(session.question, session, module.Options(**options))), llm, searched


@pytest.mark.parametrize("decoder", SAID)
def test_what_a_model_goes_on_with_is_neither_answer_nor_query_nor_prompt(decoder, tmp_path):
    write_records(tmp_path / "labels.jsonl", [KnowledgeLabel(question_id="a", question=QUERY, label="unknow")])
    said, searches = SAID[decoder]
    prediction, llm, searched = decode(
        decoder, [reply + ON for reply in said], **({"labels": tmp_path / "labels.jsonl"} if decoder == "skr" else {})
    )
    assert (prediction.answer, len(searched.calls)) == ("Lyon", searches)
    assert not [text for text in (*searched.calls, *(call.text for call in llm.calls)) if "Zork" in text]
    assert [step.name for step in prediction.trace if step.name == "fault"] == []
    assert all(step.cut.startswith("Question:") for step in prediction.trace if step.text in said)


@pytest.mark.parametrize("decoder", [name for name in SAID if name != "skr"])
def test_a_prompt_repeated_with_another_question_is_cut_off(decoder):
    said, searches = SAID[decoder]
    prediction, llm, searched = decode(decoder, said, goes_on=lambda prompt: "\n" + prompt.replace(QUERY, "Who made Zork?") + " Zork")
    assert (prediction.answer, len(searched.calls)) == ("Lyon", searches)
    assert not [text for text in (*searched.calls, *(call.text for call in llm.calls)) if "Zork" in text]


def test_a_date_scores_whatever_question_follows_it_in_ra_isf():
    def script(text):
        if text.startswith("Please break down"):
            return "1. When was it made?\nQuestion: Who made Zork?\nSub-questions:\n1. Where is Zork?"
        if text.startswith(("Can you use", "Please assess")):
            return {KNOW: 0.0, UNKNOW: 1.0} if QUERY in text or RELEVANT in text else {KNOW: 1.0, UNKNOW: 0.0}
        return "November 6, 1986\nSub-question: Who made Zork?\nSub-answer: Zork" if "Sub-" in text else "November 6, 1986\nQuestion: Zork?"

    asked, llm = Question(id="q", text=QUERY), FakeLLM(script)
    session = Session(question=asked, llm=llm, retriever=FakeRetriever(lambda query: []), passages_per_query=3, max_new_tokens=99)
    prediction = asyncio.run(ra_isf.decode(asked, session, ra_isf.Options()))
    assert exact_match(prediction.answer, ["November 6, 1986"]) == 1
    assert llm.texts("generate")[-1].endswith("Sub-question: When was it made?\nSub-answer: November 6, 1986\nAnswer:")
    assert [call.text for call in llm.calls if "Zork" in call.text] == []
    assert knowledge_prompt("When was it made?") in llm.texts("label_probs")


def test_re_thinking_reads_no_query_of_the_models_own():
    said = ["Knowledge 1: keep, because it names her.", "Her birth is missing.", "Where was Maria Torvel born?", "Lyon"]
    prediction, llm, searched = decode("re_thinking", said, goes_on=lambda prompt: "\nQuery: Who made Zork?\nKnowledge 1: remove")
    assert (prediction.answer, searched.calls) == ("Lyon", [QUERY, "Where was Maria Torvel born?"])
    assert "Knowledge 1: keep, because it names her.\n" in llm.texts("generate")[-1]
    assert not any("Zork" in call.text for call in llm.calls)


def test_migres_reads_the_first_of_two_json_replies():
    said = [
        {"useful_information": [{"info": "Maria Torvel directed Dune.", "support_passages": [1]}]},
        {"answer": "Lyon", "explanation": "She was born there."},
    ]
    on = '\n\nQuestion: Who made Zork?\nYour response: {"answer": "Zork", "useful_information": []}'
    prediction, llm, _ = decode("migres", [json.dumps(reply) + on for reply in said], reranker="none")
    assert (prediction.answer, prediction.cost.calls) == ("Lyon", 2)
    assert not any("Zork" in call.text for call in llm.calls)


@pytest.mark.parametrize(
    ("decoder", "reply"),
    [
        ("chain_of_thought", f"Question: {QUERY}\nShe was born in Lyon.\nThe answer is Lyon."),
        ("chain_of_note", "Passage 1: Dune: it names her.\nPassage 2: nothing.\nThe answer is Lyon."),
        ("react", "I think.\nThought: I know.\nAction: Finish[Lyon]"),
        ("self_ask", "No.\nIntermediate answer: Lyon.\nSo the final answer is: Lyon"),
        ("plan_and_solve", "1. Find her.\n2. Where?\nPlan: Lyon.\nAnswer: Lyon"),
    ],
    ids=lambda value: value if value.isidentifier() else "",
)
def test_markers_that_belong_to_a_reply_are_no_end_of_it(decoder, reply):
    prediction, _, _ = decode(decoder, [reply])
    assert (prediction.answer, [step.cut for step in prediction.trace if step.cut]) == ("Lyon", [])


def test_a_reply_that_repeats_its_prompt_before_it_answers_is_cut_at_another_question_only():
    prompt = render_prompt("chain_of_thought", question=QUERY, passages=[])
    repeats = f"Question: {QUERY}\nStep 1.\nQuestion: {QUERY}\nThe answer is Lyon."
    assert split_reply(repeats, prompt) == (repeats, "")
    assert split_reply(f"{repeats}\nQuestion: Who made Zork?", prompt) == (repeats, "Question: Who made Zork?")


def test_a_question_in_place_of_an_answer_is_no_answer():
    prediction, _, _ = decode("chain_of_thought", ["Question: Who made Zork?\nThe answer is Zork."])
    assert prediction.answer == "unknown"
    assert [step.cut for step in prediction.trace if step.cut] == ["Question: Who made Zork?\nThe answer is Zork."]


def test_a_reply_that_is_cut_was_not_truncated():
    session = Session(
        question=Question(id="q", text=QUERY), llm=FakeLLM(lambda text: "Lyon" + ON), retriever=None, passages_per_query=1, max_new_tokens=9
    )
    module = importlib.import_module("infer.decoders.direct")
    prediction = asyncio.run(module.decode(session.question, session, module.Options()))
    assert (prediction.answer, [step.name for step in prediction.trace]) == ("Lyon", ["answer_direct"])
