"""The plan of a run: its steps are the trainer's, its parameters the papers' models', its memory what a run really holds."""

from pathlib import Path

import pytest
import torch
import yaml
from helpers.autograd_bytes import kept_by_autograd

from refinery.contract.records import Passage, Step, Trajectory, write_records
from refinery.errors import CheckpointError, RecipeError
from refinery.runtime.forecast import Expected
from train.__main__ import main
from train.families.causal import build_trainer
from train.families.model import build_model
from train.launch.launch import Launch, launch_of, read_accelerate_config
from train.planning.activations import saved_bytes
from train.planning.duration import time_of_a_token
from train.planning.memory import Parameters, count_parameters, estimate
from train.planning.meta_model import meta_model
from train.planning.plan import forecast, plan_work
from train.recipe import TrainRecipe
from train.rows.data import encode_rows, training_records

ONE = Launch(1, "none")
GIB = 2**30


@pytest.fixture
def values(tiny_bases, tmp_path):
    """The values of a recipe over a tiny base and seven rows, one of them too long."""
    names = ("Dune", "Golden Harbor", "The Iron Raven", "Silent Valley", "Lyon", "Orion", "A" * 300)
    rows = [
        Trajectory(
            question_id=name,
            question=f"Who directed {name}?",
            steps=[
                Step(action="rewrite", text=name[:20], passages=[Passage(id="1", title=name[:20], text="It is a film.")]),
                Step(action="answer", text="Maria"),
            ],
        )
        for name in names
    ]
    write_records(tmp_path / "rows.jsonl", rows)
    return {
        "task": "refinement",
        "base": str(tiny_bases["untied"]),
        "data": [str(tmp_path / "rows.jsonl")],
        "output_dir": str(tmp_path / "run"),
        "dtype": "float32",
        "gradient_checkpointing": False,
        "lora_dropout": 0.0,
        "learning_rate": 1e-2,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "epochs": 2.5,
        "max_length": 200,
    }


def planned(base: str, strategy: str, config: str, **changes) -> tuple:
    """(parameters, memory) of training a published shape under a shipped accelerate file."""
    recipe = {"task": "refinement", "base": base, "data": ["x"], "output_dir": "x", "learning_rate": 1e-4, "strategy": strategy}
    recipe = TrainRecipe.model_validate(recipe | {"per_device_train_batch_size": 1} | changes)
    return estimate(recipe, launch_of(read_accelerate_config(config), source=config), length=256, target_length=32)


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("meta-llama/Llama-2-7b-hf", 6_738_415_616),
        ("meta-llama/Meta-Llama-3-8B", 8_030_261_248),
        ("google-t5/t5-large", 737_668_096),
        ("google/flan-t5-large", 783_150_080),
    ],
)
def test_a_published_shape_has_its_published_parameters(base, expected):
    """As the models' own cards count them; a sub-model's task adds no row to the base."""
    family = "seq2seq" if "t5" in base else "causal"
    values = {
        "task": "relevance",
        "base": base,
        "family": family,
        "data": ["x"],
        "output_dir": "x",
        "learning_rate": 1e-4,
        "strategy": "full",
    }
    recipe = TrainRecipe.model_validate(values)
    assert count_parameters(meta_model(recipe), recipe).base == expected


def test_control_tokens_cost_llama_2_seventy_four_thousand_parameters():
    """8 control tokens and padding, on embedding and head: 9 x 4,096 x 2, not the 262 million of two whole embeddings."""
    parameters, _ = planned("meta-llama/Llama-2-7b-hf", "lora", "single")
    assert parameters.token_rows == 73_728
    assert parameters.base == 6_738_415_616 + 64 * 4096 * 2
    assert parameters.trained == parameters.adapter + parameters.token_rows


def test_llama_3_is_not_resized():
    parameters, _ = planned("meta-llama/Meta-Llama-3-8B", "lora", "single")
    assert (parameters.base, parameters.token_rows) == (8_030_261_248, 73_728)


def test_full_training_of_seven_billion_parameters_takes_sixteen_bytes_each():
    """Weights, gradients and Adam's two moments in float32 (and bfloat16 copies while computing), or ZeRO-3's 16 bytes over 8 GPUs."""
    parameters, alone = planned("meta-llama/Llama-2-7b-hf", "full", "single")
    assert alone.weights + alone.gradients + alone.optimizer == 18 * parameters.trained
    _, split = planned("meta-llama/Llama-2-7b-hf", "full", "zero3")
    assert split.weights + split.gradients + split.optimizer == 16 * parameters.trained / 8


def test_qlora_holds_seven_billion_parameters_in_four_gigabytes():
    _, memory = planned("meta-llama/Llama-2-7b-hf", "qlora", "single")
    assert 3.3 * GIB < memory.weights < 4 * GIB


def test_a_run_is_planned_step_for_step(values):
    recipe = TrainRecipe.model_validate(values)
    model, tokenizer = build_model(recipe)
    rows, _ = encode_rows(training_records(recipe), recipe, tokenizer)
    trainer = build_trainer(model, tokenizer, rows, recipe)
    trainer.train()
    work = plan_work(recipe, ONE)
    assert (work.steps, work.rows, work.overlong["rows_dropped_overlong"]) == (trainer.state.max_steps, 6, 1)
    assert work.tokens == sum(len(row.input_ids) for row in rows)
    assert 0 < work.tokens_trained < work.tokens


def test_more_processes_make_fewer_steps(values):
    recipe = TrainRecipe.model_validate(values)
    assert [plan_work(recipe, Launch(processes, "ddp")).steps for processes in (1, 2)] == [5, 3]


@pytest.mark.parametrize("strategy", ["full", "lora"])
def test_the_memory_of_a_run_is_what_was_planned(values, strategy):
    """Weights, gradients and optimizer states to the byte; activations within a factor of 1.3 (measured: 0.9 to 1.1)."""
    from transformers import TrainerCallback

    class Measure(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model, **_):
            self.gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)

        def on_step_end(self, args, state, control, optimizer, **_):
            states = [tensor for values in optimizer.state.values() for name, tensor in values.items() if name != "step"]
            self.optimizer = sum(tensor.nbytes for tensor in states)

    recipe = TrainRecipe.model_validate(values | {"strategy": strategy, "max_steps": 1})
    model, tokenizer = build_model(recipe)
    rows, _ = encode_rows(training_records(recipe), recipe, tokenizer)
    trainer, measured = build_trainer(model, tokenizer, rows, recipe), Measure()
    trainer.add_callback(measured)
    trainer.train()
    parameters, memory = estimate(recipe, ONE, length=64)
    assert memory.weights == sum(parameter.nbytes for parameter in trainer.model.parameters())
    assert (memory.gradients, memory.optimizer) == (measured.gradients, measured.optimizer)
    assert parameters.trained == sum(parameter.numel() for parameter in trainer.model.parameters() if parameter.requires_grad)
    assert memory.activations == pytest.approx(measured_activations(trainer.model, length=64), rel=0.3)


def measured_activations(model, *, length: int) -> int:
    """Bytes that autograd keeps of a real forward pass with the attention that training uses."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model.get_base_model().get_decoder()
    return kept_by_autograd(model, lambda: decoder(input_ids=torch.zeros((2, length), dtype=torch.long)))


def test_deeper_models_keep_as_much_more_as_one_layer(values):
    recipe = TrainRecipe.model_validate(values)
    one, two, three = (saved_bytes(meta_model(recipe, layers=layers), recipe, length=32) for layers in (1, 2, 3))
    assert three - two == two - one > 0


def test_recomputing_keeps_less(values):
    kept, recomputed = (
        estimate(TrainRecipe.model_validate(values | {"gradient_checkpointing": on}), ONE, length=128)[1].activations
        for on in (False, True)
    )
    assert recomputed < kept


def test_a_dry_run_prints_the_plan_for_the_file_that_is_named(values, tmp_path, capsys):
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(values))
    assert main([str(tmp_path / "r.yaml"), "--dry-run", "--config_file", "zero2", "--num_processes", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "launch       zero2: 3 processes, model split: zero2" in lines
    assert "steps        3 of 12 rows (2 on each of 3, 2 accumulated)" in lines
    assert [line.split()[0] for line in lines if line.startswith("  ") and line.split()[-1].replace(".", "").isdigit()][-1] == "total"
    assert any(line.startswith("tokens ") and "label density" in line for line in lines)
    assert any("14.3% dropped for their length" in line for line in lines)
    assert "--- example 1" in lines


def test_a_model_that_is_not_here_is_planned_without_its_tokenizer(values, tmp_path, capsys):
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(values | {"base": "meta-llama/Llama-2-7b-hf"}))
    assert main([str(tmp_path / "r.yaml"), "--dry-run"]) == 0
    assert "7; tokens are not counted: the tokenizer of meta-llama/Llama-2-7b-hf is not here" in capsys.readouterr().out


def test_a_plan_refuses_what_a_run_would(values, tmp_path):
    recipe = TrainRecipe.model_validate(values | {"strategy": "qlora"})
    from train.planning.plan import plan_lines

    with pytest.raises(RecipeError, match="train garbage without an error"):
        plan_lines(recipe, Launch(8, "zero3"))
    with pytest.raises(CheckpointError, match="there is no such folder"):
        plan_lines(TrainRecipe.model_validate(values | {"base": str(tmp_path / "absent")}), ONE)


def test_rows_and_memory_are_planned_before_the_rows_exist(tiny_bases):
    values = {"task": "refinement", "base": str(tiny_bases["tied"]), "data": ["x"], "output_dir": "x", "learning_rate": 1e-5}
    planned = forecast(TrainRecipe.model_validate(values | {"max_length": 512}), Expected({Path("x"): 800}))

    assert planned.rows == 800
    assert (planned.memory_bytes or 0) > 1e6


@pytest.mark.parametrize(
    ("changes", "known", "measured"),
    [
        ({"packing": True, "lora_rank": 64}, True, True),
        ({"packing": False, "lora_rank": 64}, True, False),
        ({"strategy": "full", "packing": True}, True, False),
        ({"strategy": "qlora", "packing": True}, False, False),
    ],
)
def test_time_is_only_said_of_what_was_measured(changes, known, measured):
    values = {"task": "relevance", "base": "meta-llama/Llama-2-7b-hf", "data": ["x"], "output_dir": "x", "learning_rate": 1e-4}
    recipe = TrainRecipe.model_validate(values | {"strategy": "lora", "gradient_checkpointing": False} | changes)
    time = time_of_a_token(recipe, Parameters(6_738_415_616, 159_907_840, 0, 159_907_840))
    assert (time is not None) == known
    assert time is None or time.measured == measured
    assert not measured or time.seconds * 4096 == pytest.approx(0.361, rel=0.01)
