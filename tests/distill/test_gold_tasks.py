import asyncio

import pytest

from distill.bench import Bench
from distill.recipe import DistillRecipe
from distill.run import load_task
from distill.teacher import RejectedRow
from refinery.records import Passage, Question, SubQuestion
from refinery.retrievers.base import RetrieverConfig, build_retriever

DUNE = Passage(id="dune", title="Dune", text="Dune is a film that Maria Torvel directed.")
TORVEL = Passage(id="torvel", title="Maria Torvel", text="Maria Torvel was born in Lyon.")
OSLO = Passage(id="oslo", title="Oslo", text="Oslo is a city where nobody directed films.")
CHAIN = [
    SubQuestion(text="Who directed Dune?", answer="Maria Torvel", supporting=["dune"]),
    SubQuestion(text="Where was #1 born?", answer="Lyon", supporting=["torvel"]),
]
QUESTION = Question(
    id="q",
    text="Where was the director of Dune born?",
    answers=["Lyon", "Lugdunum"],
    passages=[OSLO, DUNE, TORVEL],
    supporting=["dune", "torvel"],
    decomposition=CHAIN,
)


def label(task, question, **values):
    recipe = DistillRecipe(
        task=task, questions=["questions.jsonl"], output_dir="unused", retriever=RetrieverConfig(name="candidates"), **values
    )
    bench = Bench(recipe, None, None, build_retriever(recipe.retriever))
    return asyncio.run(load_task(recipe).label(question, bench))


def changed(**values):
    return QUESTION.model_copy(update=values)


def rejection(task, question, **values):
    with pytest.raises(RejectedRow) as raised:
        label(task, question, **values)
    return raised.value


def judged(question):
    return {(row.question, row.passage.id): row.label for row in label("gold_relevance", question)}


def test_a_passage_is_relevant_to_the_sub_question_that_it_answers():
    labels = judged(QUESTION)
    assert labels["Who directed Dune?", "dune"] == "relevant"
    assert labels["Who directed Dune?", "oslo"] == "irrelevant"
    assert labels["Where was Maria Torvel born?", "torvel"] == "relevant"


def test_no_passage_alone_is_enough_for_a_question_of_two_hops():
    assert {label for (asked, _), label in judged(QUESTION).items() if asked == QUESTION.text} == {"irrelevant"}


def test_a_passage_that_supports_every_step_is_enough_for_the_question():
    steps = [CHAIN[0], CHAIN[1].model_copy(update={"supporting": ["torvel", "dune"]})]
    assert judged(changed(decomposition=steps))[QUESTION.text, "dune"] == "relevant"


def test_without_annotated_steps_every_supporting_passage_is_relevant():
    labels = judged(changed(decomposition=None))
    assert labels == {
        (QUESTION.text, "dune"): "relevant",
        (QUESTION.text, "torvel"): "relevant",
        (QUESTION.text, "oslo"): "irrelevant",
    }


def test_steps_without_paragraphs_fall_back_to_the_questions_own():
    steps = [step.model_copy(update={"supporting": None}) for step in CHAIN]
    assert judged(changed(decomposition=steps))[QUESTION.text, "dune"] == "relevant"


@pytest.mark.parametrize("task", ["gold_relevance", "gold_refinement"])
def test_a_question_that_names_no_support_is_rejected(task):
    assert rejection(task, changed(supporting=None, decomposition=None)).reason == "no_support_annotated"


@pytest.mark.parametrize("task", ["gold_relevance", "gold_refinement"])
def test_a_question_without_passages_is_rejected_and_does_not_end_the_run(task):
    assert rejection(task, changed(passages=None)).reason == "no_passages"


def test_a_decomposition_keeps_its_references():
    (row,) = label("gold_decomposition", QUESTION)
    assert row.sub_questions == ["Who directed Dune?", "Where was #1 born?"]
    assert row.provenance.task == "gold_decomposition"


def test_a_question_without_a_decomposition_is_rejected():
    assert rejection("gold_decomposition", changed(decomposition=None)).reason == "no_decomposition"


def test_a_trajectory_searches_each_sub_question_with_earlier_answers_filled_in():
    (trajectory,) = label("gold_refinement", QUESTION, passages_per_query=1)
    assert [(step.action, step.text, [p.id for p in step.passages]) for step in trajectory.steps] == [
        ("decompose", "Who directed Dune?", ["dune"]),
        ("decompose", "Where was Maria Torvel born?", ["torvel"]),
        ("answer", "Lyon", []),
    ]


def test_a_question_without_a_decomposition_is_searched_as_it_is():
    (trajectory,) = label("gold_refinement", changed(decomposition=None))
    assert [(step.action, step.text) for step in trajectory.steps] == [("rewrite", QUESTION.text), ("answer", "Lyon")]


def test_a_trajectory_that_misses_support_is_discarded():
    rejected = rejection("gold_refinement", changed(decomposition=CHAIN[:1]), passages_per_query=1)
    assert str(rejected) == "missed_support: no search found torvel"


def test_support_that_is_not_among_the_passages_is_missed():
    assert rejection("gold_refinement", changed(supporting=["dune", "torvel", "q:Lyon:0"])).reason == "missed_support"


def test_operations_and_steps_that_need_an_unknown_answer_are_not_searched():
    steps = [
        SubQuestion(text="Who directed Dune?", supporting=["dune"]),
        SubQuestion(text="Where was Maria Torvel born?", supporting=["torvel"]),
        SubQuestion(text="Is #1 from there?", supporting=["torvel"]),
        SubQuestion(text="Is that so?", supporting=[]),
    ]
    (trajectory,) = label("gold_refinement", changed(decomposition=steps, answers=["yes"]))
    assert [step.text for step in trajectory.steps] == ["Who directed Dune?", "Where was Maria Torvel born?", "yes"]


def test_more_sub_questions_than_max_steps_are_rejected():
    assert rejection("gold_refinement", QUESTION, max_steps=1).reason == "too_many_steps"


def test_a_question_without_an_answer_is_rejected():
    assert rejection("gold_refinement", changed(answers=[])).reason == "no_gold_answer"
