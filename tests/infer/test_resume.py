"""Runs that are killed and gone on with, as real processes; the model is behind a chat server, so that a process starts quickly."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from helpers.free_port import free_port

from infer.__main__ import main
from refinery.contract.records import Passage, Question, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction
from refinery.demo.teacher.server import ChatServer, Faults, serving
from refinery.prompts.render import prompt_hash

PROJECT = Path(__file__).parents[2]
QUESTIONS = [Question(id=f"q{i}", text=f"Who directed film {i}?", answers=[f"Maria {i}"], split="test") for i in range(30)]
REPLY_SECONDS = 0.05
PASSAGES = [Passage(id=str(i), title=f"film {i}", text=f"film {i} is a film directed by Maria {i}.") for i in range(30)]


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """A chat server that takes its time, and remembers how much it was asked."""
    with serving(lambda prompt: f"Maria {len(prompt)}", faults=Faults(slow_seconds=REPLY_SECONDS)) as server:
        yield server


@pytest.fixture
def recipe(tmp_path, server) -> Path:
    """A `rag` run over that server, one question at a time in each process."""
    write_records(tmp_path / "questions.jsonl", QUESTIONS)
    write_records(tmp_path / "passages.jsonl", PASSAGES)
    values = {
        "decoder": "rag",
        "questions": [str(tmp_path / "questions.jsonl")],
        "output_dir": str(tmp_path / "run"),
        "endpoint": {"base_url": server.base_url, "model": "scripted"},
        "retriever": {"passages": str(tmp_path / "passages.jsonl")},
        "questions_in_flight": 1,
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))
    return tmp_path / "recipe.yaml"


def launch(recipe: Path, processes: int, *arguments: str) -> list[subprocess.Popen]:
    """The processes of one run, numbered as a launcher numbers them."""
    common = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "infer", str(recipe), *arguments]
    return [
        subprocess.Popen(command, cwd=PROJECT, env=os.environ | common | {"RANK": str(rank)}, stdout=subprocess.DEVNULL)
        for rank in range(processes)
    ]


def finish(processes: list[subprocess.Popen]) -> list[int]:
    return [process.wait(timeout=120) for process in processes]


def kill_last_when(answered: int, processes: list[subprocess.Popen], run: Path) -> None:
    """SIGKILL to the last process once each ledger holds so many answers; the others are left to find out."""
    while not _each_has(answered, run, len(processes)):
        assert all(process.poll() is None for process in processes), "the run ended before it could be killed"
        time.sleep(0.01)
    processes[-1].send_signal(signal.SIGKILL)
    assert finish(processes) == [*[2] * (len(processes) - 1), -signal.SIGKILL]


def _each_has(answered: int, run: Path, ledgers: int) -> bool:
    counts = [path.read_bytes().count(b"\n") for path in run.glob("*.ledger.*")]
    return len(counts) == ledgers and min(counts) >= answered


def mark(run: Path) -> set[str]:
    """Change the answer of every whole line, so that an answer kept can be told from one given again; gives their questions."""
    marked = set()
    for path in run.glob("*.ledger.*"):
        *whole, torn = path.read_text().split("\n")
        rows = [json.loads(line) for line in whole]
        for row in rows:
            row["prediction"]["answer"] = "kept"
            marked.add(row["prediction"]["question_id"])
        path.write_text("".join(json.dumps(row) + "\n" for row in rows) + torn)
    return marked


def predictions(run: Path) -> list[Prediction]:
    return read_records(run / PREDICTIONS_FILE, Prediction)


def kept(run: Path) -> set[str]:
    return {prediction.question_id for prediction in predictions(run) if prediction.answer == "kept"}


def metrics_of(run: Path) -> dict:
    return json.loads((run / "metrics.json").read_text())


def assert_whole(run: Path) -> None:
    assert [prediction.question_id for prediction in predictions(run)] == [question.id for question in QUESTIONS]
    assert metrics_of(run)["questions"] == len(QUESTIONS)
    assert not list(run.glob("*.ledger*"))


@pytest.mark.parametrize(("before", "after"), [(2, 1), pytest.param(1, 2, marks=pytest.mark.slow)])
def test_a_killed_run_answers_only_what_is_missing_on_any_number_of_processes(recipe, tmp_path, server, before, after):
    run = tmp_path / "run"
    kill_last_when(3, launch(recipe, before), run)
    done, asked = mark(run), server.requests
    assert 3 * before <= len(done) < len(QUESTIONS)
    assert not (run / "metrics.json").exists()

    again = [main([str(recipe), "--resume"])] if after == 1 else finish(launch(recipe, after, "--resume"))
    assert again == [0] * after
    assert kept(run) == done
    assert_whole(run)
    assert server.requests == asked + len(QUESTIONS) - len(done)
    cost = metrics_of(run)["cost"]  # of both parts
    assert (cost["calls"], cost["retrievals"]) == (len(QUESTIONS), len(QUESTIONS))
    assert cost["seconds"] >= REPLY_SECONDS * len(QUESTIONS) / max(before, after)


def test_a_run_that_lacked_only_its_scores_asks_nothing_and_keeps_prompts_and_time(recipe, tmp_path, server):
    """Killed after the last answer: the process that scores has rendered no prompt and spent no time."""
    run = tmp_path / "run"
    assert main([str(recipe)]) == 0
    whole, asked = metrics_of(run), server.requests
    (run / "metrics.json").unlink()
    prompts = {"answer_with_passages": prompt_hash("answer_with_passages")}
    rows = [
        {"attempt": 1, "seconds": 0.5 * number, "prompts": prompts, "prediction": json.loads(prediction.model_dump_json())}
        for number, prediction in enumerate(predictions(run), 1)
    ]
    (run / f"{PREDICTIONS_FILE}.ledger.0").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert finish(launch(recipe, 1, "--resume")) == [0]
    again = metrics_of(run)
    assert server.requests == asked
    assert (again["prompts"], again["cost"]) == (prompts, whole["cost"] | {"seconds": 15.0})


STOPPING_DECODER = """
from infer.decoders import rag
from infer.decoders.base import Decoder
from refinery.llms.served.endpoint import UnusableEndpoint

stop_at = {"q5"}

async def decode(question, session, options):
    if question.id in stop_at:
        raise UnusableEndpoint("the machine went away")
    return await rag.decode(question, session, options)

Stopping = Decoder(decode, rag.Options, needs_retriever=True)
"""


def test_a_run_interrupted_twice_in_the_middle_of_a_line_goes_on(recipe, tmp_path, server, monkeypatch):
    (tmp_path / "stopping.py").write_text(STOPPING_DECODER)
    monkeypatch.syspath_prepend(tmp_path)
    command, ledger = [str(recipe), "decoder=stopping:Stopping"], tmp_path / "run" / f"{PREDICTIONS_FILE}.ledger.0"
    assert main(command) == 2
    import stopping

    for stop_at in ({"q9"}, set()):
        with ledger.open("ab") as file:
            file.write('{"attempt": 1, "prediction": {"question_id": "q5", "question": "é'.encode()[:-1])
        stopping.stop_at = stop_at
        assert main([*command, "--resume"]) == (2 if stop_at else 0)
    assert_whole(tmp_path / "run")
