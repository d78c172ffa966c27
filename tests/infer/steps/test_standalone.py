"""What a model writes for a standalone question is asked only if it can be the user's question."""

import asyncio
import re
from pathlib import Path

import pytest

from infer.session import Session
from infer.steps.standalone import standalone_question
from refinery.contract.records import Question
from refinery.demo.teacher.server import serving
from refinery.llms.build import build_llm
from refinery.llms.fake import FakeLLM
from refinery.llms.served.endpoint import EndpointConfig
from refinery.questions.base import read_questions

DATA = Path(__file__).parents[4] / "shared" / "data"
BORN = Question(id="q", text="When was he born?", history=["Who directed Dune?", "Denis Villeneuve"])
NORWAY = Question(id="q", text="What is the capital of Norway?", history=["What is the capital of France?", "Paris"])
TOGETHER = "Who directed Dune? Denis Villeneuve When was he born?"


def reworded(question, said):
    session = Session(question=question, llm=FakeLLM(lambda text: said), retriever=None, passages_per_query=0)
    return asyncio.run(standalone_question(question, session)), [step.text for step in session.trace if step.name == "fault"], session.llm


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (BORN, "When was Denis Villeneuve born?"),
        (NORWAY, "What is the capital of Norway?"),
        (NORWAY.model_copy(update={"text": "what is photosynthesis?"}), "what is photosynthesis?"),
        (BORN.model_copy(update={"text": "And where?"}), "Where was Denis Villeneuve born?"),
        (BORN.model_copy(update={"text": "tell me more about him"}), "Tell me more about Denis Villeneuve"),
        (Question(id="q", text="他什么时候出生的\uff1f", history=["谁导演了沙丘\uff1f", "丹尼斯"]), "丹尼斯什么时候出生的\uff1f"),
        (
            Question(id="q", text="Wann wurde er geboren?", history=["Wer drehte Dune?", "Denis Villeneuve"]),
            "Wann wurde Denis Villeneuves Vater geboren?",
        ),
    ],
)
def test_a_standalone_question_is_asked(question, said):
    assert reworded(question, said)[:2] == (said, [])


@pytest.mark.parametrize(
    ("question", "said", "asked", "reason"),
    [
        (BORN, "", TOGETHER, "empty: "),
        (
            BORN,
            "Denis Villeneuve was born in 1967.",
            TOGETHER,
            "unparsed: condense: 'Denis Villeneuve was born in 1967.' is not a question",
        ),
        (BORN, "Who made Dune?", TOGETHER, "unparsed: condense: 'Who made Dune?' is another question"),
        (
            BORN,
            "When was Frank Herbert born?",
            TOGETHER,
            "unparsed: condense: 'When was Frank Herbert born?' names nothing of the conversation",
        ),
        (BORN, BORN.text, TOGETHER, "unparsed: condense: 'When was he born?' still needs the conversation"),
        (BORN, "I cannot help with that request.", TOGETHER, "refused: "),
        (BORN, "so " * 99, TOGETHER, "truncated: "),
        (NORWAY, "What is the capital of Sweden?", NORWAY.text, "unparsed: condense: 'What is the capital of Sweden?' is another question"),
    ],
)
def test_anything_else_is_a_fault_and_the_question_is_asked_with_what_it_needs(question, said, asked, reason):
    alone, faults, _ = reworded(question, said)
    assert alone == asked
    assert len(faults) == 1
    assert faults[0].startswith(reason)
    assert faults[0].endswith(f"; asked as {asked!r}")


def test_of_a_long_turn_only_the_beginning_is_asked_with_the_question():
    alone, _, _ = reworded(BORN.model_copy(update={"history": ["Who directed Dune?", "Denis Villeneuve, " + "so " * 500]}), "")
    assert alone == f"Who directed Dune? Denis Villeneuve, {'so ' * 10}When was he born?"


def test_a_chat_endpoint_may_reason_first():
    async def ask(url):
        llm = build_llm(EndpointConfig(base_url=url, model="scripted"))
        session = Session(question=BORN, llm=llm, retriever=None, passages_per_query=0)
        try:
            return await standalone_question(BORN, session), [step.name for step in session.trace]
        finally:
            await llm.close()

    with serving(lambda prompt: "<think>\nHe is the director.\n</think>\n\nWhen was Denis Villeneuve born?") as server:
        assert asyncio.run(ask(server.base_url)) == ("When was Denis Villeneuve born?", ["condense"])


def test_the_model_completes_examples_up_to_the_end_of_the_line():
    _, _, llm = reworded(BORN, "When was Denis Villeneuve born?\nUser: so " + "so " * 99)
    prompt = llm.texts("generate")[0]
    assert re.search(r"Assistant: Denis Villeneuve\nLast question: When was he born\?\nStandalone question:$", prompt)
    assert prompt.count("Standalone question:") == 4


# The others mostly have a name that only the article's title gives, which is not in the dialogue.
@pytest.mark.skipif(not DATA.exists(), reason=f"needs {DATA}")
@pytest.mark.parametrize(("reader", "file"), [("canard", "dev.json"), ("cast", "2020_manual_evaluation_topics_v1.0.json")])
def test_rewrites_by_people_are_asked(reader, file):
    questions = [
        question for question in read_questions([DATA / reader / file], reader=reader) if question.history and question.disambiguations
    ]
    gold = {question.id: question.disambiguations[0].text for question in questions}
    used = sum(reworded(question, gold[question.id])[0] == gold[question.id] for question in questions)
    assert used > 0.85 * len(questions)
