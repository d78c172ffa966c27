"""Weighted losses in two processes are those of one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from refinery.contract.records import Step, Trajectory, write_records
from refinery.llms.weights.checkpoint import load_checkpoint
from train.recipe import TrainRecipe
from train.run import run

PROJECT = Path(__file__).parents[3]


@pytest.mark.slow
def test_two_processes_weigh_tokens_as_one_does(tiny_bases, tmp_path):
    """Rows differ in supervised tokens, so a mean of the processes' means would not do. Losses agree to 1e-4, weights to 1e-5."""
    rows = [
        Trajectory(question_id=str(number), question="Who?", steps=[Step(action="answer", text=" ".join(["Maria"] * (1 + 6 * number)))])
        for number in range(4)
    ]
    write_records(tmp_path / "rows.jsonl", rows)
    values = {
        "task": "refinement", "base": str(tiny_bases["tied"]), "data": [str(tmp_path / "rows.jsonl")], "strategy": "full",
        "dtype": "float32", "gradient_checkpointing": False, "learning_rate": 1e-3, "max_steps": 2, "gradient_accumulation_steps": 1,
        "loss_weights": {"control_token": 5.0}, "padding_free": True,
    }  # fmt: skip
    alone = values | {"output_dir": str(tmp_path / "alone"), "per_device_train_batch_size": 4}
    both = values | {"output_dir": str(tmp_path / "both"), "per_device_train_batch_size": 2}
    one = run(TrainRecipe.model_validate(alone), resume=False)
    (tmp_path / "both.yaml").write_text(yaml.safe_dump(both))
    launch = ["-m", "accelerate.commands.launch", "--config_file", "accelerate_configs/ddp_cpu.yaml", "--main_process_port", "0"]
    command = [sys.executable, *launch, "-m", "train", str(tmp_path / "both.yaml")]
    done = subprocess.run(command, cwd=PROJECT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    two = json.loads((tmp_path / "both" / "metrics.json").read_text())
    for name in ("train_loss", "train_loss_control_token", "train_loss_answer"):
        assert two[name] == pytest.approx(one[name], rel=1e-4)
    models = (load_checkpoint(str(tmp_path / name))[0] for name in ("alone", "both"))
    for mine, theirs in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
