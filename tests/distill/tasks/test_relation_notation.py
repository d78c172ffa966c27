"""MuSiQue's relation notation: read as a question, or refused, and never trained without a word."""

import json

import pytest

from distill.recipe import DistillRecipe
from distill.run import run
from refinery.contract.records import Passage, Question, SubQuestion, write_records
from refinery.contract.relation_notation import QUESTIONS, as_question, is_notation
from refinery.runtime.recipe import build_recipe

PASSAGES = [
    Passage(id="anna", title="Anna Benson", text="Anna Benson is the spouse of Kris Benson."),
    Passage(id="kris", title="Kris Benson", text="Kris Benson played for the Pittsburgh Pirates."),
]
QUESTION = Question(
    id="q",
    text="What team was Anna Benson's husband on?",
    answers=["Pittsburgh Pirates"],
    passages=PASSAGES,
    supporting=["anna", "kris"],
    decomposition=[
        SubQuestion(text="Anna Benson >> spouse", answer="Kris Benson", supporting=["anna"]),
        SubQuestion(text="#1 >> member of sports team", answer="Pittsburgh Pirates", supporting=["kris"]),
    ],
)
UNKNOWN = QUESTION.model_copy(update={"decomposition": [SubQuestion(text="Anna Benson >> IUCN status", supporting=["anna"])]})
WORDED = ["Who is the spouse of Anna Benson?", "Which sports team is #1 a member of?"]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Anna Benson >> spouse", "Who is the spouse of Anna Benson?"),
        ("#1 >> capital of", "What is #1 the capital of?"),
        ("Province of #1 >> Capital", "What is the capital of Province of #1?"),
        ("{} {0} >> performer", "Who is the performer of {} {0}?"),
        ("Anna Benson >> favourite colour", None),
        ("Who is Anna Benson's spouse?", None),
        ("What does >> do?", None),
        ("a >> b >> spouse", None),
        ("Anna >>spouse", None),
        (">> spouse", None),
    ],
)
def test_a_known_relation_becomes_a_question(text, question):
    assert as_question(text) == question


def test_only_the_notation_is_taken_for_it():
    assert [is_notation(text) for text in ("#1 >> spouse", " A >> IUCN status ", "Is 3 >> 1?", "What does >> do", "A > b")] == [
        True,
        True,
        False,
        True,
        False,
    ]


def test_every_rule_makes_a_question_that_names_its_subject():
    for relation, form in QUESTIONS.items():
        assert form.count("{}") == 1
        assert form.endswith("?")
        assert form[0].isupper()
        assert as_question(f"#1 >> {relation}") == form.replace("{}", "#1")


@pytest.mark.parametrize(("relations", "expected"), [("kept", [step.text for step in QUESTION.decomposition]), ("questions", WORDED)])
def test_decompositions_are_worded_as_the_recipe_says(label, relations, expected):
    (row,) = label("decomposition", QUESTION, by="annotations", relations=relations)
    assert row.sub_questions == expected


def test_trajectories_and_relevance_labels_ask_the_worded_questions(label):
    (trajectory,) = label("refinement", QUESTION, by="annotations", kind="multi_hop", relations="questions")
    asked = ["Who is the spouse of Anna Benson?", "Which sports team is Kris Benson a member of?"]
    assert [step.text for step in trajectory.steps[:-1]] == asked
    rows = label("relevance", QUESTION, by="annotations", relations="questions")
    assert list(dict.fromkeys(row.question for row in rows)) == [QUESTION.text, *asked]
    assert [(row.question, row.passage.id) for row in rows if row.label == "relevant"] == [(asked[0], "anna"), (asked[1], "kris")]


@pytest.mark.parametrize(("question", "relations"), [(UNKNOWN, "questions"), (UNKNOWN, "rejected"), (QUESTION, "rejected")])
@pytest.mark.parametrize(("task", "options"), [("decomposition", {}), ("refinement", {"kind": "multi_hop"}), ("relevance", {})])
def test_a_row_that_cannot_be_worded_is_rejected(rejection, task, options, question, relations):
    assert rejection(task, question, by="annotations", relations=relations, **options).reason == "relation_notation"


@pytest.mark.parametrize(("relations", "warned"), [("kept", True), ("questions", False)])
def test_a_run_that_trains_the_notation_says_so(tmp_path, caplog, relations, warned):
    write_records(tmp_path / "questions.jsonl", [QUESTION])
    values = {
        "task": "decomposition",
        "options": {"by": "annotations", "relations": relations},
        "questions": [tmp_path / "questions.jsonl"],
        "output_dir": tmp_path / "run",
    }
    metrics = run(build_recipe(values, DistillRecipe, where="recipe"), resume=False)
    assert metrics["guards"].get("relation_notation") == ({"rows": 1, "examples": ["q"]} if warned else None)
    assert ("1 rows contain MuSiQue's notation, such as 'Anna Benson >> spouse'" in caplog.text) == warned


@pytest.mark.parametrize(
    ("task", "options", "kept", "questions", "rejected"),
    [
        ("decomposition", {}, 120, 120, 51),
        ("refinement", {"kind": "multi_hop"}, 103, 103, 40),
    ],
)
def test_real_rows_are_worded_or_counted(label_release, task, options, kept, questions, rejected):
    counts, left = [], []
    for relations in ("kept", "questions", "rejected"):
        _, rows, reasons = label_release(task, "musique", {"passages_per_query": 3}, by="annotations", relations=relations, **options)
        counts.append(len(rows))
        left.append(sum(">>" in json.dumps(row.model_dump(include={"sub_questions", "steps"})) for row in rows))
        assert (reasons.count("relation_notation") > 0) == (relations == "rejected")
    assert counts == [kept, questions, rejected]
    assert left[0] > 0
    assert left[1:] == [0, 0]
