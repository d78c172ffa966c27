"""The completions engine against servers that others wrote, on CPU."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from infer.__main__ import main
from refinery.contract.control_tokens import RQ_RAG, write_manifest
from refinery.contract.records import Passage, Question, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction

QUESTIONS = [Question(id=f"q{i}", text=f"Who directed film {i}?", answers=[f"Maria {i}"], split="test") for i in range(3)]
PASSAGES = [Passage(id=str(i), title=f"film {i}", text=f"film {i} is by Maria {i}.") for i in range(3)]
READY_SECONDS = 180


@pytest.fixture
def checkpoint(tiny_model, control_tokenizer, tmp_path) -> Path:
    """A folder with a tiny random model that has RQ-RAG's control tokens."""
    folder = tmp_path / "checkpoint"
    tiny_model.save_pretrained(folder)
    control_tokenizer.save_pretrained(folder)
    write_manifest(folder, RQ_RAG, control_tokenizer)
    return folder


@pytest.fixture
def transformers_serve(checkpoint, tmp_path) -> Iterator[str]:
    """The address of `transformers serve` on the checkpoint."""
    pytest.importorskip("fastapi", reason="needs transformers[serving]")
    (tmp_path / "hf" / "hub").mkdir(parents=True)  # the server lists what is cached there
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)]
    command = [str(Path(sys.executable).with_name("transformers")), "serve", str(checkpoint), *options]
    environment = os.environ | {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until_ready(f"http://127.0.0.1:{port}/health", process, tmp_path / "server.log")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()
            process.wait()


def wait_until_ready(url: str, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    pytest.fail(f"the server was not ready within {READY_SECONDS} s: {log.read_text()}")


@pytest.fixture
def answer(tmp_path):
    """Run a recipe with its `output_dir` under `place`; gives the exit code and the run's folder."""

    def run(place: str, **values) -> tuple[int, Path]:
        write_records(tmp_path / "questions.jsonl", QUESTIONS)
        write_records(tmp_path / "passages.jsonl", PASSAGES)
        recipe = {
            "questions": [str(tmp_path / "questions.jsonl")],
            "output_dir": str(tmp_path / place),
            "retriever": {"passages": str(tmp_path / "passages.jsonl")},
            "max_new_tokens": 6,
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | values))
        return main([str(tmp_path / "recipe.yaml")]), tmp_path / place

    return run


def answers(run: Path) -> list[str]:
    return [prediction.answer for prediction in read_records(run / PREDICTIONS_FILE, Prediction)]


@pytest.mark.slow
def test_transformers_serve_runs_what_only_prompts_and_is_refused_for_what_needs_more(answer, checkpoint, transformers_serve, capsys):
    endpoint = {"base_url": transformers_serve, "model": str(checkpoint), "tokenizer": str(checkpoint)}
    code, over_http = answer("direct", decoder="direct", endpoint=endpoint)
    assert code == 0
    _, here = answer("here", decoder="direct", llm={"base": str(checkpoint)})
    assert answers(over_http) == answers(here)
    found = json.loads((over_http / "metrics.json").read_text())["endpoints"]["model"]
    assert [name for name, value in found.items() if value] == ["bos_in_text"]

    capsys.readouterr()
    for decoder, lacking in (("rq_rag", "no token-id prompts and replies, no control tokens in replies"), ("ra_isf", "no label reads")):
        code, run = answer(decoder, decoder=decoder, endpoint=endpoint)
        assert code == 2
        assert f"gives {lacking}" in capsys.readouterr().err
        assert not run.exists()


@pytest.mark.slow
@pytest.mark.skipif("REFINERY_SERVER_URL" not in os.environ, reason="REFINERY_SERVER_URL names no running vLLM server")
def test_a_running_vllm_server_answers_as_this_machine_does(answer):
    """REFINERY_SERVER_MODEL is the model's name there, REFINERY_SERVER_CHECKPOINT its folder here: float32, with control tokens."""
    checkpoint = os.environ["REFINERY_SERVER_CHECKPOINT"]
    endpoint = {
        "base_url": os.environ["REFINERY_SERVER_URL"],
        "model": os.environ["REFINERY_SERVER_MODEL"],
        "tokenizer": checkpoint,
    }
    for decoder in ("direct", "rag", "ra_isf", "rq_rag"):
        code, over_http = answer(f"{decoder}-http", decoder=decoder, endpoint=endpoint)
        assert code == 0
        code, here = answer(f"{decoder}-here", decoder=decoder, llm={"base": checkpoint})
        assert code == 0
        assert answers(over_http) == answers(here)
