"""Two CPU processes train what one trains, under every way of splitting a model, and what they save is the whole model.

Tolerances: losses 1e-5 relative, weights 1e-4. The order of sums differs between one batch of 8 and two of 4; nothing else does.
Processes are forked from a server that has the libraries loaded already, with the environment that `accelerate launch` gives its own;
the slow tests go through the launcher and the files that ship.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import yaml
from helpers.grpo_runs import grpo_values, trained_generator
from helpers.tiny_llama import saved_llama
from helpers.two_processes import in_two_processes

from refinery.contract.records import Passage, Step, Trajectory, write_records
from refinery.llms.weights.checkpoint import load_checkpoint
from refinery.runtime.recipe import load_recipe
from train.families.model import build_model, save_model
from train.recipe import TrainRecipe
from train.run import run

PROJECT = Path(__file__).parents[2]
DEEPSPEED = pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs deepspeed (extra gpu)")
ENVIRONMENTS = {
    "ddp": {},
    "zero2": {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"},
    "zero3": {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"},
}
TRAIN = """
from train.__main__ import main
sys.exit(main([{recipe!r}, "--traceback"]))
"""
# FSDP2 without accelerate, which on a CPU would run DDP instead: transformers shards a whole model as it loads it, and torch one with an
# adapter. Resuming such a run is not supported, so no checkpoint is written; ours is gathered as it is under accelerate's FSDP2.
TRAIN_UNDER_FSDP2 = """
import json, torch
torch.distributed.init_process_group("gloo")
from pathlib import Path
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig
from refinery.llms.weights.checkpoint import load_tokenizer
from refinery.runtime.recipe import load_recipe
from train.families import causal
from train.rows.data import training_records
from train.launch.checkpoints import whole_weights
from train.launch.launch import _sharding_of
from train.recipe import TrainRecipe

recipe, split = load_recipe({recipe!r}, TrainRecipe), DistributedConfig(fsdp_size=2)
arguments = causal.trainer_arguments
causal.trainer_arguments = lambda recipe: arguments(recipe) | {{"save_strategy": "no"}}
if recipe.strategy == "full":
    tokenizer = load_tokenizer(recipe.base)
    model = AutoModelForCausalLM.from_pretrained(recipe.base, dtype=torch.float32, distributed_config=split)
    model.config.use_cache = False
else:
    model, tokenizer = causal.build_model(recipe)
    for layer in model.get_base_model().model.layers:
        fully_shard(layer)
    fully_shard(model)
    model.is_distributed_loading_by_transformers, model.config.distributed_config = True, split
rows, _ = causal.encode_rows(training_records(recipe), recipe, tokenizer)
trainer = causal.build_trainer(model, tokenizer, rows, recipe)
assert _sharding_of(trainer) == "fsdp2"
trainer.train()
weights = whole_weights(trainer)
trainer.model.config.distributed_config = None  # else saving gathers once more
if torch.distributed.get_rank() == 0:
    causal.save_model(trainer.model, tokenizer, recipe, recipe.output_dir, weights)
    history = [json.dumps(log) for log in trainer.state.log_history]
    Path(recipe.output_dir, "history.jsonl").write_text("\\n".join(history))
torch.distributed.barrier()
"""


@pytest.fixture(scope="module")
def bases(tiny_tokenizer, tmp_path_factory):
    """Tiny bases whose embeddings are past the size below which ZeRO-3 leaves a parameter whole."""
    folder = tmp_path_factory.mktemp("bases")
    for name in ("tied", "untied"):
        saved_llama(folder / name, tiny_tokenizer, hidden_size=64, intermediate_size=128, tie_word_embeddings=name == "tied")
    return folder


@pytest.fixture
def recipe_file(bases, tmp_path):
    """Write a recipe of three steps over 8 rows to a folder of its own."""
    rows = [
        Trajectory(
            question_id=str(i),
            question=f"Who directed {name}?",
            steps=[
                Step(action=action, text=f"director of {name}", passages=[Passage(id="1", title=name, text=f"{name} is a film.")]),
                Step(action="answer", text=f"Maria {name}"),
            ],
        )
        for i, name in enumerate(("Dune", "Golden Harbor", "The Iron Raven", "Silent Valley"))
        for action in ("rewrite", "decompose")
    ]
    write_records(tmp_path / "rows.jsonl", rows)

    def write(name: str, base: str, strategy: str, batch: int, **changes) -> Path:
        values = {
            "task": "refinement",
            "base": str(bases / base),
            "data": [str(tmp_path / "rows.jsonl")],
            "output_dir": str(tmp_path / name),
            "strategy": strategy,
            "dtype": "float32",
            "gradient_checkpointing": False,
            "lora_dropout": 0.0,
            "learning_rate": 1e-2,
            "per_device_train_batch_size": batch,
            "gradient_accumulation_steps": 1,
            "max_steps": 3,
            "logging_steps": 1,
        }
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(values | changes))
        return tmp_path / f"{name}.yaml"

    return write


def losses(output: Path) -> list[float]:
    rows = [json.loads(line) for line in (output / "history.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def decoded_before_training(output: Path) -> dict[str, float]:
    first = json.loads((output / "history.jsonl").read_text().splitlines()[0])
    return {name: value for name, value in first.items() if name.startswith("eval_") and "runtime" not in name}


def assert_same_training(one: Path, other: Path) -> None:
    assert len(losses(one)) == 3
    assert losses(one) == pytest.approx(losses(other), rel=1e-5)
    weights, expected = (dict(load_checkpoint(str(folder))[0].named_parameters()) for folder in (one, other))
    assert weights.keys() == expected.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-4)


def alone(recipe_file, base: str, strategy: str, batch: int = 8, **changes) -> Path:
    recipe = TrainRecipe.model_validate(yaml.safe_load(recipe_file("alone", base, strategy, batch, **changes).read_text()))
    run(recipe, resume=False)
    return recipe.output_dir


SHARE_WORK = """
from pathlib import Path
import pytest
import torch.distributed as dist
from refinery.runtime.run.process_group import in_first_process, map_over_processes
worked = []
found = map_over_processes(lambda item: worked.append(item) or item * item, range(1_001))
assert found == [item * item for item in range(1_001)]
def fail():
    raise ValueError(f"of {{dist.get_rank()}}")
with pytest.raises(ValueError, match="of 0"):
    in_first_process(fail)
Path({folder!r}, f"worked_{{dist.get_rank()}}").write_text(str(len(worked)))
"""


def test_processes_share_what_each_would_do_and_an_error_of_the_first(tmp_path):
    in_two_processes(SHARE_WORK.format(folder=str(tmp_path)), tmp_path, {})
    assert [int((tmp_path / f"worked_{rank}").read_text()) for rank in range(2)] == [501, 500]


@DEEPSPEED
@pytest.mark.parametrize(
    ("split", "base", "strategy"),
    [
        ("zero3", "untied", "lora"),
        *(
            pytest.param(split, base, strategy, marks=pytest.mark.slow)
            for split, base, strategy in (
                ("zero3", "tied", "lora"),
                ("zero3", "tied", "full"),
                ("zero3", "untied", "full"),
                ("zero2", "untied", "lora"),
                ("zero2", "tied", "full"),
                ("ddp", "untied", "lora"),
                ("ddp", "tied", "full"),
            )
        ),
    ],
)
def test_two_processes_train_what_one_trains(recipe_file, tmp_path, split, base, strategy):
    expected = alone(recipe_file, base, strategy)
    in_two_processes(TRAIN.format(recipe=str(recipe_file("two", base, strategy, batch=4))), tmp_path, ENVIRONMENTS[split])
    assert_same_training(tmp_path / "two", expected)


@pytest.mark.parametrize("strategy", ["lora", pytest.param("full", marks=pytest.mark.slow)])
def test_two_processes_under_fsdp2_train_what_one_trains(recipe_file, tmp_path, strategy):
    expected = alone(recipe_file, "untied", strategy)
    recipe = recipe_file("two", "untied", strategy, batch=4)
    if strategy == "full":  # extended before it is split, since embeddings in parts cannot be resized
        whole = TrainRecipe.model_validate(yaml.safe_load(recipe.read_text()))
        save_model(*build_model(whole), whole, tmp_path / "extended")
        recipe.write_text(recipe.read_text().replace(whole.base, str(tmp_path / "extended")))
    in_two_processes(TRAIN_UNDER_FSDP2.format(recipe=str(recipe)), tmp_path, {})
    assert_same_training(tmp_path / "two", expected)


def launched(name: str, recipe: Path) -> None:
    """Train in two processes by the launcher and a file that ships."""
    command = ["-m", "accelerate.commands.launch", "--config_file", f"accelerate_configs/{name}.yaml", "--main_process_port", "0"]
    # The file is for 8 GPUs in bfloat16; this machine may have neither.
    command += ["--num_processes", "2", "--mixed_precision", "no", "-m", "train", str(recipe)]
    done = subprocess.run([sys.executable, *command], cwd=PROJECT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@DEEPSPEED
@pytest.mark.slow
@pytest.mark.parametrize("name", ["zero2", "zero3"])
def test_a_shipped_file_launches_what_it_says(recipe_file, tmp_path, name):
    expected = alone(recipe_file, "untied", "lora")
    launched(name, recipe_file("two", "untied", "lora", batch=4))
    assert_same_training(tmp_path / "two", expected)


@DEEPSPEED
@pytest.mark.slow
def test_zero3_trains_on_after_an_evaluation_that_nothing_is_saved_after(recipe_file, tmp_path):
    changes = {"eval_steps": 1, "validation": [str(tmp_path / "rows.jsonl")]}
    expected = alone(recipe_file, "untied", "lora", 8, **changes)
    launched("zero3", recipe_file("two", "untied", "lora", 4, **changes))
    assert_same_training(tmp_path / "two", expected)


@DEEPSPEED
@pytest.mark.slow
@pytest.mark.parametrize(("name", "strategy"), [("zero3", "lora"), ("zero3", "full"), ("zero2", "lora"), ("ddp_cpu", "lora")])
def test_two_processes_accumulate_evaluate_and_keep_the_best_as_one_does(recipe_file, tmp_path, name, strategy):
    changes = {"gradient_accumulation_steps": 2, "eval_steps": 1, "validation": [str(tmp_path / "rows.jsonl")]}
    changes["metric_for_best_model"] = "action_validity"
    expected = alone(recipe_file, "untied", strategy, 4, **changes)
    launched(name, recipe_file("two", "untied", strategy, 2, **changes))
    assert_same_training(tmp_path / "two", expected)
    metrics, wanted = (json.loads((folder / "metrics.json").read_text()) for folder in (tmp_path / "two", expected))
    assert (metrics["best_step"], metrics["best_score"]) == (wanted["best_step"], wanted["best_score"])


@pytest.mark.parametrize(
    ("split", "strategy"),
    [
        ("ddp", "full"),
        pytest.param("ddp", "lora", marks=pytest.mark.slow),
        pytest.param("zero2", "full", marks=[pytest.mark.slow, DEEPSPEED]),
    ],
)
def test_two_processes_learn_from_the_searches_that_one_learns_from(bases, tmp_path, split, strategy):
    """Each samples its part of the rollouts, compares it with the model before training, which the first one has read, and decodes its part
    of the held-out questions."""
    held_out = {"validation": [str(tmp_path / "held_out.jsonl")], "eval_steps": 3, "metric_for_best_model": "answer_score"}
    generator = trained_generator(tmp_path, bases / "untied")
    for name, batch in (("alone", 8), ("two", 4)):
        changes = {"output_dir": str(tmp_path / name), "per_device_train_batch_size": batch, "gradient_accumulation_steps": 1}
        changes |= held_out
        values = grpo_values(tmp_path, generator, grpo={"beta": 0.1, "temperature": 1.5}, strategy=strategy, max_steps=3, **changes)
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(values))
    run(load_recipe(tmp_path / "alone.yaml", TrainRecipe), resume=False)
    in_two_processes(TRAIN.format(recipe=str(tmp_path / "two.yaml")), tmp_path, ENVIRONMENTS[split])
    assert any(losses(tmp_path / "two"))
    assert_same_training(tmp_path / "two", tmp_path / "alone")
    assert decoded_before_training(tmp_path / "two") == decoded_before_training(tmp_path / "alone") != {}
