"""`refinery.label` with the demo's teacher behind real HTTP."""

import asyncio

import pytest
from helpers.demo_teacher import PASSAGES, QUESTIONS, WORLDS

import refinery
from refinery import Labels, RefineryError
from refinery.contract.records import Decomposition, RelevanceLabel, read_records, write_records
from refinery.demo.teacher.replies import serve
from refinery.demo.teacher.server import serving

TWO_HOP = [question for question in QUESTIONS if question.type == "two_hop"][:3]
TEXTS = [question.text for question in TWO_HOP]


@pytest.fixture(scope="module")
def server():
    with serve(WORLDS) as server:
        yield server


@pytest.fixture(scope="module")
def teacher(server):
    """The values of an endpoint."""
    return {"base_url": server.base_url, "model": "demo-teacher"}


def test_texts_are_labelled_and_nothing_is_left_behind(teacher, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = refinery.label(TEXTS, task="decomposition", teacher=teacher)
    assert [type(row) for row in labels.rows] == [Decomposition] * 3
    assert [row.question for row in labels.rows] == TEXTS
    assert (labels.rejected, labels.metrics["questions_labelled"]) == ({}, 3)
    assert list(tmp_path.iterdir()) == []


def test_questions_bring_their_answers_and_a_recipes_other_keys_are_arguments(teacher, tmp_path):
    write_records(tmp_path / "passages.jsonl", PASSAGES.values())
    labels = refinery.label(
        TWO_HOP, task="relevance", teacher=teacher, **{"retriever.passages": tmp_path / "passages.jsonl", "passages_per_query": 2}
    )
    assert [type(row) for row in labels.rows] == [RelevanceLabel] * 6
    assert [row.question_id for row in labels.rows[::2]] == [question.id for question in TWO_HOP]


def test_a_run_that_stays_is_resumed_without_asking_again(server, teacher, tmp_path):
    first = refinery.label(TEXTS, task="decomposition", teacher=teacher, output_dir=tmp_path / "run")
    asked = server.requests
    again = refinery.label(TEXTS, task="decomposition", teacher=teacher, output_dir=tmp_path / "run", resume=True)
    assert (again.rows, server.requests) == (first.rows, asked)
    assert read_records(tmp_path / "run" / "train.jsonl", Decomposition) == first.rows


def test_the_twin_gives_the_same_and_the_sync_form_runs_in_a_loop(teacher):
    async def cell() -> tuple[Labels, Labels]:
        awaited = await refinery.alabel(TEXTS, task="decomposition", teacher=teacher)
        return awaited, refinery.label(TEXTS, task="decomposition", teacher=teacher)

    awaited, sync = asyncio.run(cell())
    assert [row.sub_questions for row in awaited.rows] == [row.sub_questions for row in sync.rows]


def test_a_teacher_is_also_the_name_of_a_model(server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    labels = refinery.label(TEXTS[:1], task="decomposition", teacher="gpt-4.1-mini")
    assert labels.metrics["teacher"]["calls"] == 1


def test_a_rejected_question_says_why():
    with serving(lambda prompt: '{"sub_questions": []}') as server:
        values = {"base_url": server.base_url, "model": "m"}
        labels = refinery.label(["Who?"], task="decomposition", teacher=values, max_failure_share=1.0)
    assert labels.rows == []
    assert list(labels.rejected) == ["1"]


def test_a_file_of_questions_is_read_where_it_lies(teacher, tmp_path):
    write_records(tmp_path / "questions.jsonl", TWO_HOP)
    labels = refinery.label(tmp_path / "questions.jsonl", task="decomposition", teacher=teacher)
    assert list(labels.metrics["inputs"]) == [str(tmp_path / "questions.jsonl")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task": "relevence"}, "label: task: no task 'relevence'. Did you mean 'relevance'?"),
        ({"task": "decomposition"}, "label: teacher: is missing, and task 'decomposition' needs it."),
        ({"task": "decomposition", "teacher": "m", "max_cost": 1}, "label: max_cost: unknown key. Did you mean 'max_cost_usd'?"),
        ({"task": "decomposition", "teacher": {"model": "m", "max_token": 1}}, "label: teacher.max_token: unknown key."),
        ({"task": "decomposition", "options": {"bye": 1}}, "label: options.bye: unknown key."),
    ],
)
def test_a_wrong_argument_is_told_before_anything_is_asked(tmp_path, monkeypatch, values, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RefineryError) as caught:
        refinery.label(["Who?"], output_dir="run", **values)
    assert message in str(caught.value).splitlines()[0]
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_folder_that_holds_a_run_is_refused(teacher, tmp_path):
    refinery.label(TEXTS[:1], task="decomposition", teacher=teacher, output_dir=tmp_path)
    with pytest.raises(RefineryError, match="already contains a run. Pass --resume"):
        refinery.label(TEXTS[:1], task="decomposition", teacher=teacher, output_dir=tmp_path)
