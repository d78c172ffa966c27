"""What a reader is asked, with its gold answer: RQ-RAG's baseline without searches learns from these rows."""

import asyncio
import importlib

import pytest

from infer.session import Session
from refinery.contract.records import Passage, Question
from refinery.llms.fake import FakeLLM
from refinery.retrievers.fake import FakeRetriever

FILM = Passage(id="film", title="Dune", text="Dune was directed by Maria Torvel.")
PERSON = Passage(id="person", title="Maria Torvel", text="Maria Torvel was born in Lyon.")
OTHERS = [Passage(id=f"other {i}", title=f"Other {i}", text="Something else about a director of Dune.") for i in range(4)]
QUESTION = Question(
    id="q",
    text="Where was the director of Dune born?",
    answers=["Lyon", "Lyons"],
    passages=[*OTHERS, FILM, PERSON],
    supporting=["film", "person"],
)


def test_the_supporting_passages_are_shown_among_what_the_search_finds(label):
    (row,) = label("answers", QUESTION)
    assert all(passage.text in row.prompt for passage in (FILM, PERSON))
    assert row.prompt.count("Title:") == 5
    assert row.reply == " Lyon"


def test_the_order_of_the_passages_is_drawn_by_the_seed(label):
    prompts = {label("answers", QUESTION, seed=seed)[0].prompt for seed in (0, 0, 1, 2, 3, 4)}
    assert 1 < len(prompts) <= 5


@pytest.mark.parametrize(("decoder", "passages"), [("rag", "found"), ("direct", "none")])
@pytest.mark.parametrize("style", ["paper", "short"])
def test_a_row_is_what_the_decoder_asks(label, decoder, passages, style):
    (row,) = label("answers", QUESTION, passages=passages, answer_style=style)
    llm = FakeLLM(lambda text: "Lyon")
    found = [passage for passage in QUESTION.passages if passage.text in row.prompt]
    found.sort(key=lambda passage: row.prompt.index(f"Title: {passage.title}\n"))
    values = {"retriever": FakeRetriever(lambda query: found), "passages_per_query": 5, "answer_style": style}
    module = importlib.import_module(f"infer.decoders.{decoder}")
    asyncio.run(module.decode(QUESTION, Session(question=QUESTION, llm=llm, **values), module.Options()))
    assert llm.calls[0].text.split() == row.prompt.split()


def test_a_multiple_choice_question_is_asked_with_its_choices(label):
    (row,) = label("answers", Question(id="m", text="Dune is a", answers=["B"], choices=["city", "film"]), passages="none")
    assert "Question: Dune is a?\nPlease choose from following options:\nA: city\nB: film\n" in row.prompt
    assert row.reply == " B"


def test_the_turns_before_a_question_and_what_the_assistant_was_told_come_first(label):
    asked = Question(id="d", text="Born?", answers=["In Lyon."], history=["Who made Dune?", "Torvel."], system_prompt="Be brief.")
    (row,) = label("answers", asked, passages="none", answer_style="paper")
    assert "Question: Be brief.\nUser: Who made Dune?\nAssistant: Torvel.\nUser: Born?\nAnswer:" in row.prompt


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"answers": []}, "no_answer"),
        ({"passages": None}, "no_passages"),
        ({"supporting": None}, "missed_support"),
        ({"supporting": ["film", "elsewhere"]}, "missed_support"),
    ],
)
def test_a_question_without_what_the_row_needs_is_rejected(rejection, changes, reason):
    assert rejection("answers", QUESTION.model_copy(update=changes)).reason == reason
