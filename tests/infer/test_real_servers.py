"""The completions engine against servers that others wrote, on CPU."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from helpers.free_port import free_port
from helpers.vllm_server import vllm_server, wait_until_ready

from infer.__main__ import main
from refinery.contract.control_tokens import RQ_RAG, write_manifest
from refinery.contract.records import Passage, Question, read_records, write_records
from refinery.contract.trace import PREDICTIONS_FILE, Prediction

QUESTIONS = [Question(id=f"q{i}", text=f"Who directed film {i}?", answers=[f"Maria {i}"], split="test") for i in range(3)]
PASSAGES = [Passage(id=str(i), title=f"film {i}", text=f"film {i} is by Maria {i}.") for i in range(3)]
PROBE_TOKENS = 3_000  # of all prompts by which an endpoint is probed


@pytest.fixture
def transformers_serve(checkpoint, tmp_path) -> Iterator[str]:
    """The address of `transformers serve` on the checkpoint."""
    pytest.importorskip("fastapi", reason="needs transformers[serving]")
    (tmp_path / "hf" / "hub").mkdir(parents=True)  # the server lists what is cached there
    port = free_port()
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
    assert found.pop("requests") > 0
    assert [name for name, value in found.items() if value] == ["bos_in_text"]

    capsys.readouterr()
    for decoder, lacking in (("rq_rag", "no token-id prompts and replies, no control tokens in replies"), ("ra_isf", "no label reads")):
        code, run = answer(decoder, decoder=decoder, endpoint=endpoint)
        assert code == 2
        assert f"gives {lacking}" in capsys.readouterr().err
        assert not run.exists()


@pytest.fixture
def demo_checkpoint(tmp_path) -> Path:
    """REFINERY_VLLM_CHECKPOINT, a merged RQ-RAG model, or else the demo's base checkpoint with untrained control tokens."""
    if trained := os.environ.get("REFINERY_VLLM_CHECKPOINT"):
        return Path(trained)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import refinery.demo

    base = Path(refinery.demo.__file__).with_name("checkpoint")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(base), AutoTokenizer.from_pretrained(base)
    tokenizer.add_special_tokens({"additional_special_tokens": [token.token for token in RQ_RAG]})
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(tmp_path / "checkpoint")
    tokenizer.save_pretrained(tmp_path / "checkpoint")
    write_manifest(tmp_path / "checkpoint", RQ_RAG, tokenizer)
    return tmp_path / "checkpoint"


@pytest.fixture
def vllm_serve(demo_checkpoint, tmp_path) -> Iterator[str]:
    """The address of `vllm serve` on the checkpoint."""
    with vllm_server(demo_checkpoint, tmp_path, name="refinement", length=1024) as url:
        yield url


def trees(run: Path) -> dict[tuple[str, tuple[int, ...]], list[float]]:
    """The log-probabilities of each path, by its question and its tokens."""
    found = {}
    for prediction in read_records(run / PREDICTIONS_FILE, Prediction):
        for path in prediction.paths:
            tokens = tuple(token for step in path.steps for token in step.token_ids or ())
            read = [path.reading.logprob] if path.reading else []
            found[prediction.question_id, tokens] = [value for step in path.steps for value in step.logprobs or ()] + read
    return found


def computed_by_server(url: str) -> tuple[int, int]:
    """The prompt tokens that vLLM has computed and the tokens that it has written, by its own counters."""
    with urllib.request.urlopen(url.replace("/v1", "/metrics"), timeout=10) as reply:
        text = reply.read().decode()
    names = ("prompt_tokens", "prefix_cache_hits", "generation_tokens")
    prompt, cached, written = (int(float(re.findall(rf"^vllm:{name}_total\{{.*\}} (.*)$", text, re.MULTILINE)[0])) for name in names)
    return prompt - cached, written


TEXTS = 25  # of a question at depth 2 with three actions: 12 queries and 13 answers
SCORED = 13  # by the authors' definitions: the prompt, and the evidence of each search


@pytest.mark.slow
@pytest.mark.skipif("REFINERY_VLLM_PYTHON" not in os.environ, reason="REFINERY_VLLM_PYTHON names no Python that has vLLM")
def test_trees_on_vllm_are_those_of_this_machine_and_cost_what_vllm_counts(answer, demo_checkpoint, vllm_serve):
    rq_rag = {"decoder": "rq_rag", "passages_per_query": 2}
    for fidelity, needed in (("fixed", TEXTS), ("official", TEXTS + SCORED)):
        options = {"fidelity": fidelity, "max_query_tokens": 8}
        endpoint = {"base_url": vllm_serve, "model": "refinement", "tokenizer": str(demo_checkpoint)}
        before = computed_by_server(vllm_serve)
        _, over_http = answer(f"{fidelity}-http", **rq_rag, options=options, endpoint=endpoint)
        after = computed_by_server(vllm_serve)
        _, here = answer(f"{fidelity}-here", **rq_rag, options=options, llm={"base": str(demo_checkpoint)})
        found, expected = trees(over_http), trees(here)
        assert found.keys() == expected.keys()
        assert len(found) == 13 * len(QUESTIONS)
        for path, logprobs in expected.items():
            assert found[path] == pytest.approx(logprobs, abs=1e-4)
        costs = [prediction.cost for prediction in read_records(over_http / PREDICTIONS_FILE, Prediction)]
        reads = 0 if "REFINERY_VLLM_CHECKPOINT" in os.environ else 13  # an untrained model begins with none of a node's actions
        assert all(cost.calls <= 1.1 * (needed + reads) for cost in costs)
        probed = after[0] - before[0] - sum(cost.prefill_tokens for cost in costs)
        assert 0 < probed < PROBE_TOKENS  # the run's own requests are counted as vLLM counts them, and the rest was the probe's


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
