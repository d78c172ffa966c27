import json
import random
import re
from collections import Counter
from itertools import groupby

import pytest
from helpers.film_questions import CHAIN, QUESTION, changed

from distill.recipe import DistillRecipe
from distill.teacher.teacher import RejectedRow
from distill.writing.rank_agreement import RankAgreement
from refinery.demo.teacher.replies import DemoTeacher
from refinery.demo.world.entities import demo_worlds
from refinery.demo.world.questions import draw_questions
from refinery.errors import RecipeError


def numbers_of(title):
    """A listwise reply that names the passages of one title, wherever they stand."""
    numbered = re.compile(rf"^\[(\d+)\]\nTitle: {title}$", re.MULTILINE)
    return lambda prompt: json.dumps({"relevant": [int(number) for number in numbered.findall(prompt)]})


def labels_of(rows):
    return {row.passage.id: row.label for row in rows}


# By a teacher


def test_one_call_judges_all_passages(label, scripted_teacher):
    teacher = scripted_teacher(numbers_of("Dune"))
    rows = label("relevance", QUESTION, {"teacher": teacher})
    assert labels_of(rows) == {"dune": "relevant", "torvel": "irrelevant", "oslo": "irrelevant"}
    assert (len(teacher.prompts), {row.order_agrees for row in rows}) == (1, {None})


def test_each_passage_is_judged_in_a_call_of_its_own(label, scripted_teacher):
    teacher = scripted_teacher(lambda prompt: f'{{"label": "{"relevant" if "Title: Dune" in prompt else "irrelevant"}"}}')
    rows = label("relevance", QUESTION, {"teacher": teacher}, judge="each")
    assert labels_of(rows) == {"dune": "relevant", "torvel": "irrelevant", "oslo": "irrelevant"}
    assert [len(re.findall("^Title: ", prompt, flags=re.MULTILINE)) for prompt in teacher.prompts] == [1, 1, 1]
    assert sorted(row.provenance.request_ids for row in rows) == [["request 1"], ["request 2"], ["request 3"]]


def test_rows_stand_in_the_retrievers_order(label, scripted_teacher):
    orders = {
        judge: [row.passage.id for row in label("relevance", QUESTION, {"teacher": scripted_teacher(reply)}, judge=judge)]
        for judge, reply in {"list": '{"relevant": []}', "each": '{"label": "irrelevant"}'}.items()
    }
    assert orders["list"] == orders["each"]


def test_a_swapped_list_is_judged_in_both_orders(label, scripted_teacher):
    teacher = scripted_teacher(numbers_of("Dune"))
    rows = label("relevance", QUESTION, {"teacher": teacher}, swap=True)
    titles = [re.findall(r"^Title: (.*)$", prompt, flags=re.MULTILINE) for prompt in teacher.prompts]
    assert titles[0] == titles[1][::-1]
    assert labels_of(rows)["dune"] == "relevant"
    assert [row.order_agrees for row in rows] == [True, True, True]


def test_a_passage_that_is_relevant_in_one_order_only_is_not(label, scripted_teacher):
    rows = label("relevance", QUESTION, {"teacher": scripted_teacher('{"relevant": [1]}')}, swap=True)  # whichever comes first
    assert {row.label for row in rows} == {"irrelevant"}
    assert [row.order_agrees for row in rows] == [False, True, False]


UNREAD = RejectedRow("malformed", "field 'label'")
PASSING = RejectedRow("no_reply", "timed out")


def failing(error, on, reply):
    """A teacher's script that raises `error` for the prompts that `on` matches."""

    def script(prompt):
        if re.search(on, prompt, flags=re.MULTILINE):
            raise error
        return reply

    return script


def test_an_unreadable_label_of_one_passage_keeps_the_others(label, rejection, scripted_teacher):
    rows = label(
        "relevance", QUESTION, {"teacher": scripted_teacher(failing(UNREAD, "Title: Oslo", '{"label": "relevant"}'))}, judge="each"
    )
    assert labels_of(rows) == {"dune": "relevant", "torvel": "relevant"}
    assert rows.unlabeled == {"oslo": UNREAD}
    assert rejection("relevance", QUESTION, {"teacher": scripted_teacher(failing(UNREAD, "Title", ""))}, judge="each") is UNREAD


def test_a_passage_that_a_later_attempt_may_label_rejects_its_question_until_then(rejection, scripted_teacher):
    teacher = scripted_teacher(failing(PASSING, "Title: Oslo", '{"label": "relevant"}'))
    assert rejection("relevance", QUESTION, {"teacher": teacher}, judge="each") is PASSING
    assert len(teacher.prompts) == 3


def test_one_order_that_cannot_be_read_leaves_the_passages_that_the_other_finds_irrelevant(label, rejection, scripted_teacher):
    first, *_ = labels_of(label("relevance", QUESTION, {"teacher": scripted_teacher('{"relevant": []}')}))
    title = {"dune": "Dune", "torvel": "Maria Torvel", "oslo": "Oslo"}[first]
    reversed_order = rf"^\[3\]\nTitle: {title}$"
    rows = label("relevance", QUESTION, {"teacher": scripted_teacher(failing(UNREAD, reversed_order, '{"relevant": [1]}'))}, swap=True)
    assert {(row.label, row.order_agrees) for row in rows} == {("irrelevant", None)}
    assert rows.unlabeled == {first: UNREAD}
    teacher = scripted_teacher(failing(UNREAD, reversed_order, '{"relevant": [1, 2, 3]}'))
    assert rejection("relevance", QUESTION, {"teacher": teacher}, swap=True) is UNREAD


def test_a_number_that_no_passage_has_is_rejected(rejection, scripted_teacher):
    rejected = rejection("relevance", QUESTION, {"teacher": scripted_teacher('{"relevant": [1, 4]}')})
    assert str(rejected) == "malformed: the teacher named passages [1, 4] of 3"


def test_minus_one_alone_says_that_no_passage_is_relevant(label, rejection, scripted_teacher):
    """As small models write an empty list. Beside a passage's number it is a number that no passage has."""
    rows = label("relevance", QUESTION, {"teacher": scripted_teacher('{"relevant": [-1]}')})
    assert labels_of(rows) == {"dune": "irrelevant", "torvel": "irrelevant", "oslo": "irrelevant"}
    rejected = rejection("relevance", QUESTION, {"teacher": scripted_teacher('{"relevant": [1, -1]}')})
    assert str(rejected) == "malformed: the teacher named passages [1, -1] of 3"


@pytest.mark.parametrize("judge", ["each", "list"])
def test_a_search_that_finds_nothing_is_rejected_before_anyone_is_asked(rejection, scripted_teacher, judge):
    teacher = scripted_teacher("")
    rejected = rejection("relevance", changed(text="Qui?"), {"teacher": teacher}, judge=judge)
    assert (rejected.reason, teacher.prompts) == ("no_passages", [])


@pytest.mark.parametrize(("judge", "reply"), [("list", '{"relevant": []}'), ("each", '{"label": "irrelevant"}')])
def test_few_shot_puts_worked_examples_before_the_question(label, scripted_teacher, judge, reply):
    zero, few = scripted_teacher(reply), scripted_teacher(reply)
    label("relevance", QUESTION, {"teacher": zero}, judge=judge)
    label("relevance", QUESTION, {"teacher": few}, judge=judge, examples="few")
    for short, long in zip(zero.prompts, few.prompts, strict=True):
        instruction, asked = short.split("\n\n")
        assert long.startswith(f"{instruction}\n\nExamples:\n")
        assert long.endswith(f"\n\n{asked}")


@pytest.mark.parametrize("examples", ["zero", "few"])
def test_the_demos_teacher_judges_the_same_each_way(label, scripted_teacher, examples):
    worlds = demo_worlds(0)
    parts = {"teacher": scripted_teacher(DemoTeacher(worlds).reply)}
    passages = worlds["test"].passages()[:400]
    for question in draw_questions(worlds["test"], random.Random(0), {"single_hop": 3, "two_hop": 3}):
        own = [passage for passage in worlds["test"].passages() if passage.id in (question.supporting or [])]
        asked = question.model_copy(update={"passages": [*own, *(passage for passage in passages if passage not in own)]})
        listed, swapped, each = (
            labels_of(label("relevance", asked, parts, examples=examples, **options)) for options in ({}, {"swap": True}, {"judge": "each"})
        )
        assert listed == swapped == each
        assert ("relevant" in listed.values()) == (question.type == "single_hop")


def test_a_single_passage_has_no_order_to_swap():
    with pytest.raises(RecipeError, match="options.swap: .*set judge to list"):
        DistillRecipe(task="relevance", options={"judge": "each", "swap": True}, questions=["q"], output_dir="out").task_options()


# By annotations


@pytest.fixture
def judged(label):
    return lambda question: {(row.question, row.passage.id): row.label for row in label("relevance", question, by="annotations")}


def test_a_passage_is_relevant_to_the_sub_question_that_it_answers(judged):
    labels = judged(QUESTION)
    assert labels["Who directed Dune?", "dune"] == "relevant"
    assert labels["Who directed Dune?", "oslo"] == "irrelevant"
    assert labels["Where was Maria Torvel born?", "torvel"] == "relevant"


def test_no_passage_alone_is_enough_for_a_question_of_two_hops(judged):
    assert {label for (asked, _), label in judged(QUESTION).items() if asked == QUESTION.text} == {"irrelevant"}


def test_a_passage_that_supports_every_step_is_enough_for_the_question(judged):
    steps = [CHAIN[0], CHAIN[1].model_copy(update={"supporting": ["torvel", "dune"]})]
    assert judged(changed(decomposition=steps))[QUESTION.text, "dune"] == "relevant"


def test_without_annotated_steps_every_supporting_passage_is_relevant(judged):
    labels = judged(changed(decomposition=None))
    assert labels == {
        (QUESTION.text, "dune"): "relevant",
        (QUESTION.text, "torvel"): "relevant",
        (QUESTION.text, "oslo"): "irrelevant",
    }


def test_steps_without_paragraphs_fall_back_to_the_questions_own(judged):
    steps = [step.model_copy(update={"supporting": None}) for step in CHAIN]
    assert judged(changed(decomposition=steps))[QUESTION.text, "dune"] == "relevant"


def test_the_passages_of_a_step_that_is_annotated_twice_all_count(judged):
    steps = [CHAIN[0], CHAIN[0].model_copy(update={"supporting": ["oslo"]})]
    labels = judged(changed(decomposition=steps))
    assert labels["Who directed Dune?", "dune"] == labels["Who directed Dune?", "oslo"] == "relevant"


def test_a_question_that_names_no_support_is_rejected(rejection):
    assert rejection("relevance", changed(supporting=None, decomposition=None), by="annotations").reason == "no_support_annotated"


@pytest.mark.parametrize("by", ["annotations", "teacher"])
def test_a_question_without_passages_is_rejected_and_does_not_end_the_run(rejection, by):
    assert rejection("relevance", changed(passages=None), by=by).reason == "no_passages"


@pytest.mark.parametrize(
    ("dataset", "questions", "labels", "reasons"),
    [
        ("hotpotqa", 120, {"relevant": 178, "irrelevant": 182}, {}),
        ("two_wiki", 180, {"relevant": 457, "irrelevant": 1292}, {}),
        ("musique", 120, {"relevant": 249, "irrelevant": 1006}, {}),
        ("strategyqa", 600, {"relevant": 434, "irrelevant": 542}, {"no_passages": 444, "no_support_annotated": 1}),
    ],
)
def test_every_real_row_is_labelled_or_rejected(label_release, dataset, questions, labels, reasons):
    asked, rows, rejected = label_release("relevance", dataset, {"passages_per_query": 3}, by="annotations")
    assert (len(asked), len({row.question_id for row in rows}) + len(rejected)) == (questions, questions)
    assert (Counter(row.label for row in rows), Counter(rejected)) == (labels, reasons)


@pytest.mark.parametrize("dataset", ["hotpotqa", "two_wiki", "musique", "strategyqa"])
def test_what_bm25_ranks_first_is_relevant_more_often_than_the_rest(label_release, dataset):
    _, rows, _ = label_release("relevance", dataset, {"passages_per_query": 3}, by="annotations")
    agreement = RankAgreement()
    for _, labels in groupby(rows, key=lambda row: row.question_id):
        agreement.add(dataset, list(labels))
    figures = agreement.report()[dataset]
    assert figures["relevant_within_top_k"] > figures["relevant_at_rank_1"]
    assert figures["relevant_at_rank_1"] / figures["queries"] > 1.25 * figures["relevant_passages"] / figures["passages"]
