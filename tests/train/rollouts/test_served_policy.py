"""Sampling on a server that reads the weights in training: a completions server on loopback, and vLLM itself where there is one."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.completions_server import CompletionsServer
from helpers.grpo_runs import grpo_values, questions, trained_generator
from helpers.vllm_server import vllm_server

import refinery.demo
from refinery.contract.trace import Prediction
from refinery.errors import LLMError, RunDirError
from refinery.llms.weights.checkpoint import load_checkpoint
from refinery.llms.weights.merged_weights import merged_weights
from refinery.runtime.recipe import build_recipe
from train.commands.merge import merge
from train.launch.launch import Launch
from train.methods.grpo import build_model, save_model
from train.planning.plan import plan_lines
from train.recipe import TrainRecipe
from train.rollouts.sampler import RolloutSampler
from train.run import run

EVALUATED = {"eval_steps": 1, "metric_for_best_model": "answer_score"}


@pytest.fixture(scope="module")
def generator(tiny_bases, tmp_path_factory):
    return trained_generator(tmp_path_factory.mktemp("generator"), tiny_bases["tied"])


def served_generator(folder: Path) -> Any:
    return load_checkpoint(str(folder))


@pytest.fixture
def recipe(generator, tmp_path):
    def build(url: str, name: str = "run", **changes) -> TrainRecipe:
        values = grpo_values(tmp_path, changes.pop("base", generator), **changes) | {"output_dir": tmp_path / name}
        values["rollouts"] = values["rollouts"] | {"server": {"base_url": url, "model": "tiny"}}
        return build_recipe(values, TrainRecipe, where="r.yaml")

    return build


@pytest.fixture
def strict(monkeypatch):
    """Let a server differ from the model in training by rounding only."""
    monkeypatch.setattr("train.rollouts.served_policy._SAME_WEIGHTS", 1e-4)


def answers(decoded: dict[str, list[Prediction]]) -> list[list[str]]:
    return [[one.answer for one in found] for found in decoded.values()]


@pytest.mark.parametrize("strategy", ["full", "lora"])
@pytest.mark.parametrize("base", ["tied", "untied"])
def test_what_a_server_is_sent_is_the_merged_checkpoint_and_the_model_stays_as_it_is(tiny_bases, tmp_path, strategy, base):
    recipe = TrainRecipe.model_validate(grpo_values(tmp_path, tiny_bases[base], strategy=strategy))
    model, tokenizer = build_model(recipe)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.01 * torch.randn_like(parameter)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = merged_weights(model, torch.float32)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    save_model(model, tokenizer, recipe, tmp_path / "saved")
    merged = tmp_path / "saved" if strategy == "full" else merge(tmp_path / "saved", tmp_path / "merged")
    expected, _ = load_checkpoint(str(merged))
    tied = set(expected.all_tied_weights_keys)
    assert found.keys() == expected.state_dict().keys() - tied
    for name, value in found.items():
        torch.testing.assert_close(value, expected.state_dict()[name], rtol=0, atol=1e-6, msg=name)


@pytest.mark.parametrize("strategy", [pytest.param("full", marks=pytest.mark.slow), "lora"])
def test_rollouts_and_evaluations_are_of_the_weights_of_their_step(generator, recipe, tmp_path, strict, strategy):
    model, tokenizer = served_generator(generator)
    first = model.get_input_embeddings().weight.clone()
    with CompletionsServer(model, tokenizer, reloads=True) as server:
        held_out = {"validation": [str(tmp_path / "held_out.jsonl")]} | EVALUATED
        trained = recipe(server.base_url, strategy=strategy, learning_rate=1e-2, max_steps=3, **held_out)
        metrics = run(trained, resume=False)
    assert server.reloaded == [str(trained.output_dir.absolute() / "checkpoints" / "policy")] * (3 + 4)  # steps, and evaluations
    sampled = [body for body in server.requests if body["temperature"] == 1.0]
    assert all((body["top_p"], body["top_k"], body["min_p"]) == (1.0, -1, 0.0) for body in sampled)
    assert metrics["rollouts"] == 24
    assert not torch.equal(first, model.get_input_embeddings().weight)


def test_a_server_answers_greedily_as_the_engine_in_this_process(generator, recipe, tmp_path):
    base, tokenizer = load_checkpoint(str(generator))
    with CompletionsServer(base, tokenizer, reloads=True) as server:
        served = recipe(server.base_url)
        model, _ = build_model(served)
        asked = questions()
        over_http = RolloutSampler(served).decode(model, tokenizer, asked)
        here = served.model_copy(update={"rollouts": served.rollouts.model_copy(update={"server": None})})
        in_process = RolloutSampler(here).decode(model, tokenizer, asked)
    assert answers(over_http) == answers(in_process)


def test_a_server_that_cannot_be_told_to_read_weights_is_refused_in_one_line(generator, recipe):
    told = "no such route. Start vLLM with VLLM_SERVER_DEV_MODE=1"
    with CompletionsServer(*load_checkpoint(str(generator))) as server, pytest.raises(LLMError, match=told):
        run(recipe(server.base_url), resume=False)
    with pytest.raises(LLMError, match="Is the vLLM server of rollouts.server up"):
        run(recipe("http://127.0.0.1:9/v1", "down"), resume=False)


def test_a_server_of_another_model_is_refused_in_one_line(tiny_bases, recipe):
    server = CompletionsServer(*load_checkpoint(str(tiny_bases["untied"])), reloads=True)
    with server, pytest.raises(LLMError, match=r"cannot read the weights in .*policy \(status 500: .*Does it see this folder\?"):
        run(recipe(server.base_url), resume=False)


def test_a_server_that_keeps_its_old_weights_is_found_out(generator, recipe, monkeypatch):
    model, tokenizer = served_generator(generator)
    with torch.no_grad():
        model.get_input_embeddings().weight += 1.0
    monkeypatch.setattr(model, "load_state_dict", lambda weights, strict: ([], []))
    other = "gives other log-probabilities than the model in training"
    with CompletionsServer(model, tokenizer, reloads=True) as server, pytest.raises(LLMError, match=other):
        run(recipe(server.base_url), resume=False)


def test_a_run_goes_on_with_a_server_at_another_address(generator, recipe):
    with CompletionsServer(*served_generator(generator), reloads=True) as server:
        done = run(recipe(server.base_url), resume=False)
    moved = recipe("http://elsewhere:8000/v1")
    assert run(moved, resume=True) == done
    other = moved.model_copy(update={"rollouts": moved.rollouts.model_copy(update={"passages_per_query": 2})})
    with pytest.raises(RunDirError, match=r"another recipe \(changed: rollouts\)"):
        run(other, resume=True)


def test_the_plan_names_the_server_and_what_it_reads(recipe):
    lines = plan_lines(recipe("http://gpu:8000/v1"), Launch(1, "none"))
    assert any(line.startswith("sampled      on http://gpu:8000/v1, which reads") for line in lines)
    assert not any("kv cache" in line and not line.endswith(" 0.00") for line in lines)


@pytest.mark.slow
@pytest.mark.skipif("REFINERY_VLLM_PYTHON" not in os.environ, reason="REFINERY_VLLM_PYTHON names no Python that has vLLM")
def test_vllm_samples_with_the_weights_of_each_step(recipe, tmp_path, strict):
    generator = trained_generator(tmp_path, Path(refinery.demo.__file__).with_name("checkpoint"))  # the tiny one's heads are too small
    with vllm_server(generator, tmp_path, name="tiny", length=512, environment={"VLLM_SERVER_DEV_MODE": "1"}) as url:
        held_out = {"validation": [str(tmp_path / "held_out.jsonl")]} | EVALUATED
        trained = recipe(url, base=generator, learning_rate=1e-2, max_steps=4, **held_out)
        assert run(trained, resume=False)["rollouts"] == 32
    rows = [json.loads(line) for line in (trained.output_dir / "history.jsonl").read_text().splitlines()]
    assert sum("reward" in row for row in rows) == 4
