"""The page of distill runs: every label, prompt and reply, against the demo's teacher over real HTTP."""

import json
import random
import shutil

import pytest
import yaml

from distill.__main__ import main
from distill.viewing.card import run_card
from distill.viewing.page import write
from distill.viewing.trace_tree import label_tree
from distill.writing.label_text import label_text
from refinery.cli import main as refinery
from refinery.contract.records import write_records
from refinery.contract.split_name import INPUTS_FILE
from refinery.demo.teacher.replies import serve
from refinery.demo.teacher.server import MODEL, Faults
from refinery.demo.world.entities import demo_worlds
from refinery.demo.world.questions import draw_questions
from refinery.errors import RunDirError
from refinery.reporting.pages.content import Passages

WORLDS = demo_worlds(0)
QUESTIONS = draw_questions(WORLDS["test"], random.Random(0), {"two_hop": 12})


@pytest.fixture
def distilled(tmp_path):
    """A finished run of a task."""

    def run(task, *, faults=None, **values):
        write_records(tmp_path / "questions.jsonl", QUESTIONS)
        write_records(tmp_path / "passages.jsonl", WORLDS["test"].passages())
        with serve(WORLDS, faults=faults or Faults()) as server:
            recipe = {
                "task": task,
                "questions": [str(tmp_path / "questions.jsonl")],
                "output_dir": str(tmp_path / task),
                "teacher": {"base_url": server.base_url, "model": MODEL, "max_tries": 2},
                "retriever": {"passages": str(tmp_path / "passages.jsonl")},
                "max_failure_share": 1,
                "rows_in_flight": 1,
            }
            (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | values))
            assert main([str(tmp_path / "recipe.yaml")]) == 0
        return tmp_path / task

    return run


@pytest.fixture
def page(page_by):
    return page_by(write)


def test_a_card_names_the_teacher_only_if_it_was_asked(distilled, tmp_path):
    assert ("labeled by", MODEL) in run_card(distilled("refinement"))["facts"]
    distilled("refinement", options={"kind": "multi_hop", "by": "annotations"}, output_dir=str(tmp_path / "annotated"))
    assert ("labeled by", "the dataset's annotations") in run_card(tmp_path / "annotated")["facts"]


def test_prompts_and_replies_stand_beside_the_labels(page, distilled):
    index, details = page(distilled("refinement"))
    assert [row["id"] for row in index["rows"]] == [question.id for question in QUESTIONS]
    for question, detail in zip(QUESTIONS, details, strict=True):
        exchanges = detail["runs"][0]["exchanges"]
        assert len(exchanges) == 3  # two searches and the answer
        assert all(question.text in exchange["prompt"][0][1] for exchange in exchanges)
        assert MODEL in exchanges[0]["facts"]
        (first,) = detail["runs"][0]["nodes"]
        assert first["text"] in exchanges[0]["reply"]
        assert first["token"] == "[S_Decomposed_Query]"
        assert detail["facts"] == [["gold", " | ".join(question.answers)]]


def test_a_rejected_question_is_shown_with_its_reason_and_what_was_replied(page, distilled):
    index, details = page(distilled("decomposition", faults=Faults(refuse_every=4)))
    rejected = [n for n, row in enumerate(index["rows"]) if row["cells"][0][0]["score"] == 0]
    assert rejected == [3, 7, 11]
    assert index["rows"][3]["cells"][0][0]["text"] == "refused"
    assert index["rows"][3]["text"] == QUESTIONS[3].text
    detail = details[3]["runs"][0]
    assert detail["facts"][0][0] == "rejected"
    assert detail["exchanges"][0]["reply"] in detail["facts"][0][1]
    told = dict(index["about"]["cards"][0]["facts"])["rejected"]
    assert told.startswith("3: refused 3. See failures.jsonl\nrefused, 3 of 3: ")


def test_a_reply_that_was_asked_for_again_is_there_with_its_correction(page, distilled):
    _, details = page(distilled("decomposition", faults=Faults(malform_every=5)))
    asked_again = [detail["runs"][0]["exchanges"] for detail in details if len(detail["runs"][0]["exchanges"]) > 1]
    assert [role for role, _ in asked_again[0][1]["prompt"]] == ["user", "assistant", "user"]


def test_two_teachers_labels_stand_side_by_side(page, distilled):
    first, second = distilled("relevance"), distilled("decomposition")
    index, _ = page(first, second)
    assert [run["name"] for run in index["runs"]] == ["relevance", "decomposition"]
    assert all(len(row["cells"]) == 2 and all(row["cells"]) for row in index["rows"])


def test_a_run_of_an_older_version_is_shown_with_the_inputs_of_its_recipe(page, distilled):
    run = distilled("relevance")
    shown = page(run)
    metrics = json.loads((run / "metrics.json").read_text())
    (run / "metrics.json").write_text(json.dumps({key: value for key, value in metrics.items() if key != "retriever"}))
    (run / INPUTS_FILE).unlink()
    assert page(run) == shown


@pytest.mark.parametrize("gone", ["run/effects.sqlite", "run/inputs.jsonl"])
def test_labels_are_shown_though_the_questions_or_the_store_are_gone(page, distilled, caplog, gone):
    run = distilled("relevance")
    shutil.move(run, run.parent / "run")
    (run.parent / "questions.jsonl").unlink()
    (run.parent / gone).unlink()
    index, details = page(run.parent / "run")
    assert {row["text"] for row in index["rows"]} == {question.text for question in QUESTIONS}
    assert details[0]["runs"][0]["exchanges"] == []
    assert "prompts are left out" in caplog.text


def test_a_run_without_rows_is_one_line(distilled, capsys):
    run = distilled("relevance")
    (run / "failures.jsonl").unlink()
    with pytest.raises(RunDirError, match="has not written any rows yet"):
        write([run], run / "page.html", limit=None)


def test_runs_of_two_stages_are_one_line(distilled, stored_stage, capsys):
    runs = [distilled("relevance"), stored_stage("infer")]
    assert refinery(["view", *map(str, runs), "--output", "page.html"]) == 2
    assert "Name runs of one stage" in capsys.readouterr().err


@pytest.fixture
def stored_stage(tmp_path):
    def write_record(stage):
        (tmp_path / stage).mkdir()
        (tmp_path / stage / "run.json").write_text(f'{{"stage": "{stage}", "recipe": {{}}}}')
        return tmp_path / stage

    return write_record


@pytest.mark.parametrize(
    ("rows", "text", "names"),
    [
        ([{"label": "know", "share": 0.5, "replies": ["Oslo", "Rome"]}], "know (0.50)", ["know"]),
        ([{"label": "relevant", "passage": {"id": "1", "text": "x"}, "order_agrees": False}], "1 relevant", ["relevant"]),
        ([{"sub_questions": ["A?", "B?"]}], "A? / B?", ["sub-question 1", "sub-question 2"]),
        ([{"id": "q", "text": "Who?", "answers": ["Torvel"]}], "Torvel", ["id", "text", "answers"]),
        ([{"verdict": {"from": "a task outside"}}], "", ["verdict"]),
    ],
)
def test_rows_of_every_task_are_shown(rows, text, names):
    assert label_text(rows) == text
    assert [node["name"] for node in label_tree(rows, None, Passages())] == names
