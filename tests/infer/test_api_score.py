"""`refinery.score`: answers in any form against their questions."""

import json

import pytest

import refinery
from refinery import Prediction, Question, RefineryError
from refinery.contract.records import Step, Trajectory, write_records
from refinery.contract.trace import Cost

QUESTIONS = [Question(id=f"q{i}", text=f"Where is place {i}?", answers=[city]) for i, city in enumerate(("Lyon", "Oslo", "Rome", "Bonn"))]


def prediction(question: Question, answer: str, **values) -> Prediction:
    cost = Cost(calls=1, retrievals=0, prefill_tokens=1, decode_tokens=1)
    return Prediction(question_id=question.id, question=question.text, answer=answer, trace=[], cost=cost, **values)


def test_texts_are_scored_in_the_order_of_the_questions():
    scores = refinery.score(["Lyon", "the Oslo", "Paris", None], QUESTIONS)
    assert (scores["em.squad"].mean, scores["em.squad"].questions) == (50.0, 4)
    assert scores["em.squad"].low <= 50 <= scores["em.squad"].high


def test_what_was_asked_is_scored_like_its_texts(tmp_path):
    write_records(tmp_path / "questions.jsonl", QUESTIONS)
    answered = [prediction(question, "Lyon") for question in QUESTIONS]
    assert refinery.score(answered, tmp_path / "questions.jsonl") == refinery.score(["Lyon"] * 4, QUESTIONS)


def test_a_question_that_failed_is_wrong():
    answered = [prediction(QUESTIONS[0], "Lyon"), prediction(QUESTIONS[1], "", failed="no_reply: none")]
    assert refinery.score(answered, QUESTIONS[:2])["em.squad"].mean == 50


def test_a_finished_run_has_the_scores_that_it_printed(stored_run):
    run = stored_run("run", QUESTIONS, ["Lyon", "Bern", "Rome", "Bonn"])
    printed = json.loads((run / "metrics.json").read_text())["results"]["run"]["all"]["metrics"]["f1.squad"]
    scored = refinery.score(run, run.parent / "questions.jsonl")["f1.squad"]
    assert {name: getattr(scored, name) for name in printed} == printed


def test_of_a_tree_the_selected_answer_is_scored():
    paths = [Trajectory(question_id="q0", question="x", steps=[Step(action="answer", text=text)]) for text in ("Lyon", "Bern")]
    tree = prediction(QUESTIONS[0], "Bern", paths=paths, selected={"ppl": "Lyon", "ensemble": "Bern"})
    assert refinery.score([tree], QUESTIONS[:1])["em.squad"].mean == 0


def test_a_metric_of_ones_own_is_scored_too(tmp_path, monkeypatch):
    (tmp_path / "my_lab_score.py").write_text("def words(prediction, answers):\n    return 0.25\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert refinery.score(["Lyon"], QUESTIONS[:1], metrics=["my_lab_score:words"])["my_lab_score:words"].mean == 25


@pytest.mark.parametrize(
    ("predictions", "questions", "message"),
    [
        (["Lyon"], QUESTIONS, "there are 1 predictions for 4 questions. Give one for each, in their order."),
        ([prediction(QUESTIONS[1], "Oslo")], QUESTIONS[:1], "prediction 'q1' answers 'Where is place 1?', and the question there is"),
        (["Lyon"], [Question(id="q", text="Who?")], "none of the questions has gold answers to score against."),
        (["Lyon"], "absent.jsonl", "absent.jsonl: cannot be read"),
        ("absent.jsonl", QUESTIONS, "absent.jsonl: cannot be read"),
    ],
)
def test_what_does_not_belong_together_is_one_line(predictions, questions, message):
    with pytest.raises(RefineryError) as caught:
        refinery.score(predictions, questions)
    assert str(caught.value).startswith(message)


def test_a_metric_may_be_a_function():
    def starts_alike(prediction, answers):
        return float(any(prediction[:1] == answer[:1] for answer in answers))

    scores = refinery.score(["Lima", "Oslo", "Paris", None], QUESTIONS, metrics=[starts_alike])
    assert next(score.mean for name, score in scores.items() if "starts_alike" in name) == 50
