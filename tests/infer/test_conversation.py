"""A question with a history is answered as what it means, whoever asks it: `infer` over a dialogue set, or `refinery.load(...).ask`."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from infer.api import LoadedPipeline
from infer.pipeline import Pipeline
from infer.recipe import PipelineRecipe
from refinery.contract.records import Passage, Question
from refinery.llms.fake import FakeLLM
from refinery.questions.base import read_questions
from refinery.retrievers.bm25 import Bm25

MAKERS = {"Amber Road": "Ada Quist", "Elm": "Eve Lark"}
PASSAGES = [Passage(id=film, title=film, text=f"{film} is a film by {maker}.") for film, maker in MAKERS.items()]
FOLLOW_UP = Question(id="q", text="Who made the other one?", history=["Is Elm or Amber Road by Eve?", "Elm"])


def script(text):
    return "Who made Amber Road?" if text.endswith("Standalone question:") else re.search(r"by (\w+ \w+)", text)[1]


@pytest.fixture
def pipeline():
    values = {"decoder": "rag", "llm": {"base": "none"}, "max_new_tokens": 8, "passages_per_query": 1, "retriever": {"passages": Path("p")}}
    made = Pipeline(PipelineRecipe.model_validate(values))
    made.llm, made.retriever = FakeLLM(script), Bm25(PASSAGES)
    return made


def test_a_follow_up_is_searched_and_answered_as_what_it_means(pipeline):
    prediction = asyncio.run(pipeline.outcome(FOLLOW_UP))
    assert (prediction.answer, prediction.question) == ("Ada Quist", FOLLOW_UP.text)
    assert [(step.name, step.question) for step in prediction.trace] == [
        ("condense", FOLLOW_UP.text),
        ("retrieve", "Who made Amber Road?"),
        ("answer_with_passages", "Who made Amber Road?"),
    ]
    assert (prediction.cost.calls, prediction.cost.retrievals) == (2, 1)


def test_asking_from_python_gives_the_same_prediction(pipeline):
    loaded = LoadedPipeline.__new__(LoadedPipeline)
    loaded._pipeline, loaded._closed = pipeline, False
    alone, among = loaded.ask(FOLLOW_UP), loaded.ask([FOLLOW_UP])[0]
    assert alone == among == asyncio.run(pipeline.outcome(FOLLOW_UP))


def test_a_question_without_a_history_is_asked_as_it_is(pipeline):
    prediction = asyncio.run(pipeline.outcome(Question(id="q", text="Who made Elm?")))
    assert (prediction.answer, prediction.cost.calls) == ("Eve Lark", 1)


def test_the_choices_stay_with_the_reworded_question(pipeline):
    asyncio.run(pipeline.outcome(FOLLOW_UP.model_copy(update={"choices": ["Ada Quist", "Eve Lark"]})))
    condensed, asked = pipeline.llm.texts("generate")
    assert "Last question: Who made the other one?\n" in condensed
    assert "Who made Amber Road?" in asked
    assert "Eve Lark" in asked


CANARD = {
    "QuAC_dialog_id": "d",
    "Question_no": 2,
    "History": ["Elm", "Plot", "Is Elm or Amber Road by Eve?", "Elm"],
    "Question": "Who made the other one?",
    "Rewrite": "Who made Amber Road?",
}
CAST = {
    "number": 1,
    "turn": [{"number": 1, "raw_utterance": "Is Elm or Amber Road by Eve?"}, {"number": 2, "raw_utterance": "Who made the other one?"}],
}


@pytest.mark.parametrize(("reader", "row", "shown"), [("canard", CANARD, "\nAssistant: Elm\nLast"), ("cast", CAST, "by Eve?\nLast")])
def test_dialogue_sets_bring_their_history(pipeline, tmp_path, reader, row, shown):
    path = tmp_path / "topics.json"
    path.write_text(json.dumps([row]))
    *_, question = read_questions([path], reader=reader)
    assert asyncio.run(pipeline.outcome(question)).answer == "Ada Quist"
    condensed = pipeline.llm.texts("generate")[0]
    assert "User: Is Elm or Amber Road by Eve?\n" in condensed
    assert shown in condensed


def test_a_history_of_half_a_megabyte_is_read_from_its_end(pipeline):
    long = [f"turn {number} " + "so " * 2_000 for number in range(100)]
    asyncio.run(pipeline.outcome(FOLLOW_UP.model_copy(update={"history": [*long, *FOLLOW_UP.history]})))
    condensed = pipeline.llm.texts("generate")[0]
    assert len(condensed) < 20_000
    assert "Assistant: Elm\n" in condensed
    assert "turn 9 " not in condensed
