"""The distill stage as a user runs it, against the demo's teacher over real HTTP."""

import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from distill.__main__ import main
from refinery.contract.records import Decomposition, KnowledgeLabel, Question, RelevanceLabel, Trajectory, read_records, write_records
from refinery.demo.teacher.replies import serve
from refinery.demo.teacher.server import MODEL, Faults
from refinery.demo.world.entities import demo_worlds
from refinery.demo.world.questions import draw_questions
from refinery.runtime.run import run_lock

PROJECT = Path(__file__).parents[2]
WORLDS = demo_worlds(0)
QUESTIONS = draw_questions(WORLDS["test"], random.Random(0), {"two_hop": 40})
PASSAGES = WORLDS["test"].passages()


@pytest.fixture
def recipe(tmp_path):
    """Write data and a recipe; the values given replace or extend those of a decomposition run."""

    def write(base_url: str, **values) -> Path:
        write_records(tmp_path / "questions.jsonl", QUESTIONS)
        write_records(tmp_path / "passages.jsonl", PASSAGES)
        recipe = {
            "task": "decomposition",
            "questions": [str(tmp_path / "questions.jsonl")],
            "output_dir": str(tmp_path / "run"),
            "teacher": {"base_url": base_url, "model": MODEL, "max_tries": 2},
            "retriever": {"passages": str(tmp_path / "passages.jsonl")},
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | values))
        return tmp_path / "recipe.yaml"

    return write


def command(recipe: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "distill", str(recipe), *arguments]


def read_json(path: Path):
    return json.loads(path.read_text())


def rows_of(path: Path) -> list[dict]:
    """The rows without what differs between any two runs: request ids, and the recipe hash where the output folder differs."""
    rows = read_records(path, Decomposition)
    return [row.model_dump(exclude={"provenance": {"request_ids", "recipe_hash"}}) for row in rows]


def one_error_line(stderr: str) -> str:
    assert len(stderr.splitlines()) == 1, stderr
    assert stderr.startswith("error: ")
    return stderr


@pytest.mark.parametrize(("task", "record"), [("decomposition", Decomposition), ("relevance", RelevanceLabel), ("refinement", Trajectory)])
def test_each_task_writes_its_records_by_split(recipe, tmp_path, task, record):
    with serve(WORLDS) as server:
        assert main([str(recipe(server.base_url, task=task))]) == 0
    labelled = {row.question_id for row in read_records(tmp_path / "run" / "test.jsonl", record)}
    assert labelled == {question.id for question in QUESTIONS}


@pytest.mark.parametrize(
    ("fault", "reason"), [("refuse_every", "refused"), ("truncate_every", "truncated"), ("bad_request_every", "refused")]
)
def test_every_row_is_labelled_or_rejected_with_its_reason(recipe, tmp_path, fault, reason):
    with serve(WORLDS, faults=Faults(**{fault: 10})) as server:
        # In turn, so that a fault never meets the tiny request that finds out whose fault a refusal is.
        one_at_a_time = {"base_url": server.base_url, "model": MODEL, "calls_in_flight": 1}
        assert main([str(recipe(server.base_url, teacher=one_at_a_time))]) == 0
    labelled = {row.question_id for row in read_records(tmp_path / "run" / "test.jsonl", Decomposition)}
    failures = [json.loads(line) for line in (tmp_path / "run" / "failures.jsonl").read_text().splitlines()]
    assert labelled | {failure["question_id"] for failure in failures} == {question.id for question in QUESTIONS}
    assert [failure["reason"] for failure in failures] == [reason] * 4
    metrics = read_json(tmp_path / "run" / "metrics.json")
    assert (metrics["questions_labelled"], metrics["rejected_by_reason"]) == (36, {reason: 4})


def test_a_reply_that_does_not_fit_is_asked_for_once_more(recipe, tmp_path):
    with serve(WORLDS, faults=Faults(malform_every=10)) as server:
        one_at_a_time = {"base_url": server.base_url, "model": MODEL, "calls_in_flight": 1}
        assert main([str(recipe(server.base_url, teacher=one_at_a_time))]) == 0
        assert server.requests == len(QUESTIONS) + 4
    assert read_json(tmp_path / "run" / "metrics.json")["questions_labelled"] == len(QUESTIONS)


def test_a_reply_that_never_fits_rejects_its_row(recipe, tmp_path):
    with serve(WORLDS, faults=Faults(malform_every=1)) as server:
        assert main([str(recipe(server.base_url, limit=3, max_failure_share=1))]) == 0
    assert read_json(tmp_path / "run" / "metrics.json")["rejected_by_reason"] == {"malformed": 3}


def test_a_row_says_where_it_comes_from(recipe, tmp_path):
    with serve(WORLDS) as server:
        main([str(recipe(server.base_url))])
    provenance = read_records(tmp_path / "run" / "test.jsonl", Decomposition)[0].provenance
    assert (provenance.task, list(provenance.prompts), provenance.model) == ("decomposition", ["teacher_decomposition"], MODEL)
    assert provenance.request_ids[0].startswith("chatcmpl-")
    assert provenance.num_prompt_tokens > 0


def test_too_many_rejected_rows_fail_the_run(recipe, tmp_path, capsys):
    with serve(WORLDS, faults=Faults(refuse_every=2)) as server:
        assert main([str(recipe(server.base_url))]) == 2
    assert "20 of 40 rows were rejected, more than max_failure_share 0.2 allows (20 refused)" in one_error_line(capsys.readouterr().err)
    assert not (tmp_path / "run" / "metrics.json").exists()
    assert len((tmp_path / "run" / "failures.jsonl").read_text().splitlines()) == 20


def test_an_endpoint_that_is_down_is_one_line(recipe, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    done = subprocess.run(command(recipe(address)), capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 2
    assert f"endpoint {address} (model '{MODEL}') cannot be used: Connection refused." in one_error_line(done.stderr)
    assert not (tmp_path / "run").exists()


def test_a_first_start_that_reached_nobody_is_not_in_the_way_of_the_second(recipe, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    path = str(recipe(address))
    assert main([path]) == 2
    with serve(WORLDS) as server:
        assert main([path, f"teacher.base_url={server.base_url}"]) == 0
    assert not (tmp_path / "run" / "stopped.json").exists()


def test_a_run_that_another_process_works_on_is_refused(recipe, tmp_path, capsys):
    with serve(WORLDS) as server, run_lock.locked_run(tmp_path / "run"):
        assert main([str(recipe(server.base_url))]) == 2
        assert server.requests == 0
    assert "another process is working on this run" in one_error_line(capsys.readouterr().err)


def test_a_killed_run_resumes_and_pays_only_what_is_missing(recipe, tmp_path):
    settings = {"base_url": "", "model": MODEL, "calls_in_flight": 2}
    with serve(WORLDS, faults=Faults(slow_seconds=0.1)) as slow:
        port, settings["base_url"] = slow.server_port, slow.base_url
        process = subprocess.Popen(command(recipe(slow.base_url, teacher=settings)), cwd=PROJECT)
        while slow.requests < 12:
            assert process.poll() is None, "the run ended before it could be killed"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with sqlite3.connect(tmp_path / "run" / "effects.sqlite") as store:
        paid = store.execute("SELECT count(*) FROM effects").fetchone()[0]
    assert 0 < paid < len(QUESTIONS)
    assert slow.requests - paid <= settings["calls_in_flight"]
    assert not (tmp_path / "run" / "metrics.json").exists()

    with serve(WORLDS, port=port) as server:
        assert main([str(tmp_path / "recipe.yaml"), "--resume"]) == 0
        assert server.requests == len(QUESTIONS) - paid
        assert main([str(tmp_path / "recipe.yaml"), f"output_dir={tmp_path}/straight"]) == 0
    assert rows_of(tmp_path / "run" / "test.jsonl") == rows_of(tmp_path / "straight" / "test.jsonl")


def test_a_finished_run_resumed_pays_nothing(recipe, tmp_path):
    with serve(WORLDS) as server:
        path = str(recipe(server.base_url))
        assert (main([path]), main([path, "--resume"])) == (0, 0)
        assert server.requests == len(QUESTIONS)
    assert read_json(tmp_path / "run" / "metrics.json")["questions_labelled"] == len(QUESTIONS)


@pytest.mark.parametrize(
    ("content", "values", "message"),
    [
        (None, {}, "questions.jsonl: cannot be read (No such file or directory)."),
        ("", {}, "questions.jsonl: has no rows. It should hold one Question per line."),
        ('{"id": "a", "text": "Who?"}\n{"id": "b", "txt": "Who?"}\n', {}, "questions.jsonl:2: field 'text': is missing."),
        ('{"id": "a", "text": "Who?"}\n{"id": "b", \n', {}, "questions.jsonl:2: not valid JSON at column"),
        ('{"id": "a", "text": "Who?"}\n' * 2, {}, "question id 'a' is used twice."),
        ("x", {"tsk": "relevance"}, "tsk: unknown key. Did you mean 'task'?"),
        ("x", {"task": "relevence"}, "no task 'relevence'. Did you mean 'relevance'? Available: answers, decomposition,"),
        ("x", {"reader": "jsnl"}, "no reader 'jsnl'. Did you mean 'jsonl'?"),
        ("x", {"task": "self_knowledge"}, "target: is missing, and task 'self_knowledge' needs it."),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(recipe, tmp_path, capsys, content, values, message):
    path = recipe("http://127.0.0.1:1/v1", **values)
    (tmp_path / "questions.jsonl").unlink() if content is None else (tmp_path / "questions.jsonl").write_text(content)
    assert main([str(path)]) == 2
    assert message in one_error_line(capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


def test_a_missing_corpus_leaves_nothing_that_looks_whole(recipe, tmp_path, capsys):
    path = recipe("http://127.0.0.1:1/v1", task="relevance", retriever={"passages": "absent.jsonl"})
    assert main([str(path)]) == 2
    assert "absent.jsonl: cannot be read" in one_error_line(capsys.readouterr().err)
    assert not {"metrics.json", "test.jsonl"} & {file.name for file in (tmp_path / "run").glob("*")}


def test_self_knowledge_compares_the_targets_own_answer_with_gold(recipe, tmp_path, tiny_bases):
    values = {"task": "self_knowledge", "target": {"base": str(tiny_bases["tied"])}, "max_new_tokens": 4, "limit": 2}
    path, output = recipe("http://127.0.0.1:9/v1", **values), tmp_path / "run" / "test.jsonl"
    assert main([str(path)]) == 0
    replies = [row.replies[0] for row in read_records(output, KnowledgeLabel)]
    assert [row.label for row in read_records(output, KnowledgeLabel)] == ["unknow", "unknow"]

    known, unknown = QUESTIONS[0].model_copy(update={"answers": ["Lyon", replies[0]]}), QUESTIONS[1]
    write_records(tmp_path / "questions.jsonl", [known, unknown])
    assert main([str(path), f"output_dir={tmp_path}/again"]) == 0
    assert [row.label for row in read_records(tmp_path / "again" / "test.jsonl", KnowledgeLabel)] == ["know", "unknow"]


def test_a_question_without_gold_answers_gets_no_self_knowledge_label(recipe, tmp_path, tiny_bases):
    values = {"task": "self_knowledge", "target": {"base": str(tiny_bases["tied"])}, "max_failure_share": 1.0}
    path = recipe("http://127.0.0.1:9/v1", **values)
    write_records(tmp_path / "questions.jsonl", [Question(id="a", text="Who?", split="test"), QUESTIONS[0]])
    assert main([str(path)]) == 0
    assert read_json(tmp_path / "run" / "metrics.json")["rejected_by_reason"] == {"no_gold_answer": 1}


@pytest.mark.parametrize("task", ["decomposition", "relevance", "refinement"])
def test_a_dry_run_prints_prompts_and_asks_nobody(recipe, tmp_path, capsys, task):
    with serve(WORLDS) as server:
        assert main([str(recipe(server.base_url, task=task)), "--dry-run"]) == 0
        assert server.requests == 0
    printed = capsys.readouterr().out
    assert f"task: {task}" in printed
    assert all(f"Question: {question.text}" in printed for question in QUESTIONS[:3])
    assert not (tmp_path / "run").exists()


def test_the_api_key_is_written_nowhere(recipe, tmp_path):
    key = "sk-never-to-be-written"
    with serve(WORLDS, faults=Faults(bad_request_every=10)) as server:
        path = recipe(server.base_url, teacher={"base_url": server.base_url, "model": MODEL, "api_key_env": "SOME_KEY"})
        done = subprocess.run(command(path), capture_output=True, cwd=PROJECT, env=os.environ | {"SOME_KEY": key})
    assert done.returncode == 0
    written = [path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(written) >= 5
    assert not any(key.encode() in text for text in [*written, done.stdout, done.stderr])
