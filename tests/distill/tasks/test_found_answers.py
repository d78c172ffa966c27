"""RA-ISF App. B: of TriviaQA's gold answers, only those that are in the passages found for the question count."""

import pytest
import yaml

from distill.steps.found_answers import answers_in
from distill.tasks.self_knowledge import Options, needs
from refinery.contract.records import Passage, Question
from refinery.llms.fake import FakeLLM
from refinery.runtime.recipes.shipped_files import shipped

FOUND = [Passage(id="1", text="Dune was directed by Villeneuve."), Passage(id="2", text="Villeneuve was born in Lyon.")]
QUESTION = Question(
    id="q", text="Where was the director of Dune born?", answers=["Lyon", "Lugdunum", ":-)"], passages=FOUND, dataset="triviaqa"
)
RULE = {"triviaqa": 1000}


def test_an_answer_is_found_by_its_words_in_order():
    texts = ["He went to New  York.", "from Lyonnais"]
    assert answers_in(texts, ["York New", "new york", "Lyon", "to"]) == ["new york", "to"]


@pytest.mark.parametrize(
    ("reply", "within", "expected"),
    [
        ("Lyon", RULE, "know"),
        ("Lugdunum", RULE, "unknow"),
        ("Lugdunum", {}, "know"),  # as the released code, which has no such rule
        ("Lugdunum", {"nq_open": 1000}, "know"),
    ],
)
def test_a_student_knows_only_what_a_search_finds(label, reply, within, expected):
    (row,) = label("self_knowledge", QUESTION, {"target": FakeLLM(lambda text: reply)}, answers_within=within)
    assert row.label == expected


def test_a_question_is_rejected_before_it_is_asked_if_no_answer_is_found(rejection):
    target, unfound = FakeLLM(lambda text: "Oslo"), QUESTION.model_copy(update={"answers": ["Oslo"]})
    assert rejection("self_knowledge", unfound, {"target": target}, answers_within=RULE).reason == "no_answer_found"
    assert not target.calls


def test_a_question_without_gold_answers_is_not_searched_for(rejection):
    question = QUESTION.model_copy(update={"answers": []})
    assert rejection("self_knowledge", question, {"target": FakeLLM(lambda text: "")}, answers_within=RULE).reason == "no_gold_answer"


def test_only_the_first_passages_count(label):
    question = QUESTION.model_copy(update={"answers": ["Dune", "Lyon"]})
    (row,) = label("self_knowledge", question, {"target": FakeLLM(lambda text: "Lyon")}, answers_within={"triviaqa": 1})
    assert row.label == "unknow"


@pytest.mark.parametrize(
    ("by", "parts"), [("student", ("target", "retriever")), ("trees", ("runs", "retriever")), ("teacher", ("teacher",))]
)
def test_the_rule_needs_a_retriever_where_answers_are_compared(by, parts):
    assert needs(Options(by=by, answers_within=RULE)) == parts


def test_the_papers_recipe_follows_its_rule():
    recipe = yaml.safe_load(shipped("recipes/ra_isf/distill/self_knowledge.yaml").read_text(encoding="utf-8"))
    assert Options(**recipe["options"]).answers_within == RULE
