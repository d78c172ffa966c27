"""Stored runs selected and scored again: nothing changes on its own, and what changes is what was asked for."""

import json

import pytest

from infer.evaluation.rescore import rescore
from infer.evaluation.scores import SCORES_FILE
from infer.steps.selection import STRATEGIES, Definition, select
from refinery.cli import main
from refinery.contract.records import Question, Step, Trajectory, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, QUESTIONS_FILE, Cost, Prediction
from refinery.errors import RunDirError

QUESTIONS = [Question(id=f"q{number}", text=f"Who is {number}?", answers=["Torvel"]) for number in range(4)]
FILES = (PREDICTIONS_FILE, SCORES_FILE, QUESTIONS_FILE, "metrics.json")


def path(answer: str, *logprobs: float) -> Trajectory:
    return Trajectory(question_id="q", question="Who?", steps=[Step(action="answer", text=answer, logprobs=[0.0, *logprobs])])


TREE = [path("Oslo", -1.0), path("Torvel", -0.6), path("Torvel", -0.6)]


def tree(question: Question) -> Prediction:
    selected = {strategy: select(TREE, strategy, Definition("paper")) for strategy in STRATEGIES}
    cost = Cost(calls=3, retrievals=2, prefill_tokens=9, decode_tokens=3)
    values = {"trace": [], "cost": cost, "paths": TREE, "selected": selected}
    return Prediction(question_id=question.id, question=question.text, answer=selected["ensemble"], **values)


@pytest.fixture
def tree_run(stored_run):
    return stored_run("rq_rag", QUESTIONS, [tree(question) for question in QUESTIONS], decoder="rq_rag")


@pytest.fixture
def plain_run(stored_run):
    return stored_run("rag", QUESTIONS, ["Torvel", "Oslo", "", "Torvel"])


def contents(run):
    return [(run / name).read_text() for name in FILES]


@pytest.mark.parametrize("run", ["tree_run", "plain_run"])
def test_rescoring_what_has_not_changed_changes_nothing(run, request):
    run = request.getfixturevalue(run)
    before = contents(run)
    rescore(run)
    assert contents(run) == before


def test_a_received_run_names_no_module_to_run(plain_run, tmp_path, monkeypatch, capsys):
    (tmp_path / "theirs.py").write_text("from pathlib import Path\nPath('EXECUTED').touch()\ndef score(*_):\n    return 1.0\n")
    monkeypatch.chdir(tmp_path)
    record = json.loads((plain_run / "run.json").read_text())
    record["recipe"]["metrics"] = ["theirs:score"]
    (plain_run / "run.json").write_text(json.dumps(record))
    assert main(["view", str(plain_run), "--output", "page.html"]) == 0
    assert main(["rescore", str(plain_run)]) == 2
    assert "must not name a module to run. If it is your own, name it again: --trust theirs:score." in capsys.readouterr().err
    assert not (tmp_path / "EXECUTED").exists()
    assert main(["rescore", str(plain_run), "--trust", "theirs:score"]) == 0


def test_a_metric_from_outside_is_scored_and_shown(plain_run, tmp_path, monkeypatch):
    (tmp_path / "my_lab_scores.py").write_text("def long(prediction, answers):\n    return float(len(prediction) > 4)\n")
    monkeypatch.syspath_prepend(tmp_path)
    metrics = rescore(plain_run, metrics=["my_lab_scores:long"])
    assert metrics["results"]["rag"]["all"]["metrics"]["my_lab_scores:long"]["mean"] == 50
    assert "my_lab_scores:long" in metrics["results"]["rag"]["default_metrics"]


def test_another_fidelity_selects_other_answers_and_is_noted(tree_run):
    assert {p.answer for p in read_records(tree_run / PREDICTIONS_FILE, Prediction)} == {"Oslo"}
    metrics = rescore(tree_run, fidelity="fixed")
    assert metrics["results"]["rq_rag_ensemble"]["all"]["em"] == 100
    assert metrics["rescored_with"] == {"fidelity": "fixed"}
    assert {p.answer for p in read_records(tree_run / PREDICTIONS_FILE, Prediction)} == {"Torvel"}


def test_another_selection_answers_and_rescoring_plainly_takes_it_back(tree_run):
    before = contents(tree_run)
    rescore(tree_run, selection="ppl")
    assert {p.answer for p in read_records(tree_run / PREDICTIONS_FILE, Prediction)} == {"Torvel"}
    rescore(tree_run)
    assert contents(tree_run) == before


def test_new_gold_answers_are_scored_and_change_the_questions_hash(plain_run):
    before = json.loads((plain_run / "metrics.json").read_text())
    questions = [question.model_copy(update={"answers": ["Torvel", "Oslo"]}) for question in QUESTIONS]
    after = rescore(plain_run, questions=questions)
    assert (before["results"]["rag"]["all"]["em"], after["results"]["rag"]["all"]["em"]) == (50, 75)
    assert before["questions_hash"] != after["questions_hash"]
    assert before["cost"] == after["cost"]
    assert rescore(plain_run) == after  # they were kept


def test_a_question_without_a_stored_answer_counts_as_wrong(plain_run):
    write_records(plain_run / PREDICTIONS_FILE, read_records(plain_run / PREDICTIONS_FILE, Prediction)[:1])
    assert rescore(plain_run)["results"]["rag"]["all"]["em"] == 25


def test_trees_are_needed_for_another_selection(plain_run):
    with pytest.raises(RunDirError, match="decoder 'rag' makes no trees, so there is nothing to select. Drop selection."):
        rescore(plain_run, selection="ppl")


@pytest.mark.parametrize("change", [{"id": "other"}, {"text": "Who was it?"}])
def test_other_questions_than_those_answered_are_refused(plain_run, change):
    before = contents(plain_run)
    with pytest.raises(RunDirError, match="question 'q0' was answered, but it is not among the questions, or has another text there"):
        rescore(plain_run, questions=[QUESTIONS[0].model_copy(update=change), *QUESTIONS[1:]])
    assert contents(plain_run) == before


def test_an_unfinished_run_is_refused(plain_run):
    (plain_run / "metrics.json").unlink()
    with pytest.raises(RunDirError, match="is unfinished. Resume it with --resume."):
        rescore(plain_run)


def test_a_run_that_did_not_score_what_it_read_cannot_be_selected_as_the_authors_do(tree_run):
    before = contents(tree_run)
    with pytest.raises(RunDirError, match="was not decoded with `fidelity: official`"):
        rescore(tree_run, fidelity="official")
    assert contents(tree_run) == before


def test_knowledge_stays_as_the_runs_tokenizer_counted_it(stored_run):
    folder = stored_run("rag", QUESTIONS[:1], ["Lyon"])
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["results"]["rag"]["cost_per_question"]["knowledge_tokens"] = 321.0
    metrics["results"]["rag"]["knowledge_unit"] = "tokens"
    (folder / "metrics.json").write_text(json.dumps(metrics))
    scores = rescore(folder)["results"]["rag"]
    assert (scores["cost_per_question"]["knowledge_tokens"], scores["knowledge_unit"]) == (321.0, "tokens")


def test_a_run_from_before_knowledge_was_counted_gets_it_in_words(stored_run):
    folder = stored_run("rag", QUESTIONS[:1], ["Lyon"])
    metrics = json.loads((folder / "metrics.json").read_text())
    del metrics["results"]["rag"]["cost_per_question"]["knowledge_tokens"], metrics["results"]["rag"]["knowledge_unit"]
    (folder / "metrics.json").write_text(json.dumps(metrics))
    scores = rescore(folder)["results"]["rag"]
    assert (scores["cost_per_question"]["knowledge_tokens"], scores["knowledge_unit"]) == (0.0, "words")
