"""What was asked of the launcher is checked: the file down to its nested keys, then the processes and the strategy that really run."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from refinery.errors import RecipeError
from train.launch import launch
from train.launch.launch import Launch, check_started, launch_from_env, launch_of, read_accelerate_config

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def accelerate_file(tmp_path):
    """A shipped accelerate file with some keys changed; a dotted key reaches into a part."""

    def write(name: str, **changes) -> Path:
        values = yaml.safe_load((PROJECT / "accelerate_configs" / f"{name}.yaml").read_text())
        for key, value in changes.items():
            *parts, last = key.split("__")
            (values[parts[0]] if parts else values)[last] = value
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(values))
        return tmp_path / f"{name}.yaml"

    return write


@pytest.fixture
def environment(monkeypatch):
    """The environment that a launcher leaves its processes in; what was asked is read again."""

    def set_to(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        launch_from_env.cache_clear()

    yield set_to
    launch_from_env.cache_clear()


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "fsdp2",
            {"fsdp_config__fsdp_reshard_after_foward": True},
            "fsdp_config.fsdp_reshard_after_foward: unknown key. Did you mean 'fsdp_reshard_after_",
        ),
        ("fsdp2", {"fsdp_config__fsdp_sharding_strategy": "FULL_SHARD"}, "fsdp_config.fsdp_sharding_strategy: unknown key"),
        ("zero3", {"deepspeed_config__zero_stge": 3}, "deepspeed_config.zero_stge: unknown key. Did you mean 'zero_stage'?"),
        ("zero3", {"num_proceses": 4}, "num_proceses: unknown key. Did you mean 'num_processes'?"),
        ("fsdp2", {"fsdp_config__fsdp_version": 1}, "is not 2, so accelerate would run the deprecated FSDP 1"),
        ("ddp_cpu", {"distributed_type": "MULTI_CPU"}, "with num_processes 2 starts ONE process"),
        ("fsdp2", {"use_cpu": True}, "FSDP with use_cpu: true silently becomes DDP"),
        ("single", {"num_processes": 4}, "distributed_type NO with num_processes 4 starts one process"),
    ],
)
def test_what_accelerate_would_take_without_a_word_is_one_line(accelerate_file, name, changes, message):
    path = accelerate_file(name, **changes)
    with pytest.raises(RecipeError) as caught:
        read_accelerate_config(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "processes", "sharding"),
    [("single", 1, "none"), ("ddp", 8, "ddp"), ("ddp_cpu", 2, "ddp"), ("zero2", 8, "zero2"), ("zero3", 8, "zero3"), ("fsdp2", 8, "fsdp2")],
)
def test_a_shipped_file_is_found_by_its_name(name, processes, sharding):
    found = launch_of(read_accelerate_config(name), source=name)
    assert (found.processes, found.sharding) == (processes, sharding)


def test_the_command_line_overrules_the_files_number_of_processes():
    assert launch_of(read_accelerate_config("zero3"), source="zero3", processes=16).processes == 16


def test_one_process_of_a_file_for_several_runs_as_a_single_one_does():
    assert launch_of(read_accelerate_config("ddp"), source="ddp", processes=1).sharding == "none"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"WORLD_SIZE": "1"}, (1, "none")),
        ({"WORLD_SIZE": "4"}, (4, "ddp")),
        ({"WORLD_SIZE": "2", "ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}, (2, "zero3")),
        ({"WORLD_SIZE": "2", "ACCELERATE_USE_FSDP": "true"}, (2, "fsdp2")),
    ],
)
def test_without_a_file_the_launchers_environment_says_what_was_asked(environment, variables, expected):
    environment(**variables)
    assert (launch_from_env().processes, launch_from_env().sharding) == expected


def options(command: str, monkeypatch, environment, *, started: int) -> Launch:
    """What is asked of a process whose launcher's command line this is."""
    monkeypatch.setattr("psutil.Process.cmdline", lambda _: command.split())
    environment(WORLD_SIZE=str(started))
    return launch_from_env()


@pytest.mark.parametrize(
    "program", ["accelerate launch", "/usr/bin/python /usr/bin/accelerate launch", "python -m accelerate.commands.launch"]
)
def test_the_launchers_own_command_line_names_the_file(monkeypatch, environment, program):
    command = f"{program} --config_file accelerate_configs/ddp_cpu.yaml --num_processes 3 -m train r.yaml"
    found = options(command, monkeypatch, environment, started=3)
    assert (found.processes, found.sharding, found.source) == (3, "ddp", "accelerate_configs/ddp_cpu.yaml")


def test_fewer_processes_than_asked_for_are_an_error(monkeypatch, environment):
    command = "accelerate launch --config_file accelerate_configs/ddp_cpu.yaml -m train r.yaml"
    with pytest.raises(RecipeError, match="asks for 2 processes and the launcher started 1"):
        options(command, monkeypatch, environment, started=1)


def test_fsdp_without_a_gpu_is_an_error(monkeypatch, environment):
    monkeypatch.setattr(launch, "_has_gpu", lambda: False)
    command = "accelerate launch --config_file accelerate_configs/fsdp2.yaml --num_processes 2 -m train r.yaml"
    with pytest.raises(RecipeError, match="FSDP needs GPUs and this machine has none"):
        options(command, monkeypatch, environment, started=2)


def trainer(processes: int, *, zero_stage: int | None = None, fsdp: bool = False) -> SimpleNamespace:
    """What the check reads of a trainer that stands."""
    accelerator = SimpleNamespace(
        num_processes=processes,
        unwrap_model=lambda model: model,
        state=SimpleNamespace(deepspeed_plugin=SimpleNamespace(zero_stage=zero_stage)),
    )
    return SimpleNamespace(accelerator=accelerator, model=object(), is_deepspeed_enabled=zero_stage is not None, is_fsdp_enabled=fsdp)


@pytest.mark.parametrize(
    ("variables", "standing", "message"),
    [
        ({"WORLD_SIZE": "2"}, trainer(1), "asks for 2 processes but training would run on 1, each on a separate copy"),
        ({"WORLD_SIZE": "2", "ACCELERATE_USE_FSDP": "true"}, trainer(2), "asks for fsdp2 but training would run as ddp"),
        (
            {"WORLD_SIZE": "2", "ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"},
            trainer(2, zero_stage=2),
            "asks for zero3 but training would run as zero2",
        ),
    ],
)
def test_a_trainer_that_does_something_else_is_an_error(environment, variables, standing, message):
    environment(**variables)
    with pytest.raises(RecipeError, match=message):
        check_started(standing)


@pytest.mark.parametrize("standing", [trainer(2), trainer(2, zero_stage=2), trainer(2, fsdp=True)], ids=["ddp", "zero2", "fsdp2"])
def test_a_trainer_that_does_as_it_was_asked_passes(environment, standing):
    wanted = {
        "ACCELERATE_USE_FSDP": str(standing.is_fsdp_enabled).lower(),
        "ACCELERATE_USE_DEEPSPEED": str(standing.is_deepspeed_enabled).lower(),
    }
    environment(WORLD_SIZE="2", ACCELERATE_DEEPSPEED_ZERO_STAGE="2", **wanted)
    assert check_started(standing) is None


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("ddp_cpu", {"distributed_type": "MULTI_CPU"}, "starts ONE process"),
        pytest.param("fsdp2", {"use_cpu": True, "num_processes": 2}, "silently becomes DDP", marks=pytest.mark.slow),
        pytest.param("fsdp2", {"num_processes": 2, "mixed_precision": "no"}, "FSDP needs GPUs", marks=pytest.mark.slow),
    ],
)
def test_a_silent_trap_of_the_real_launcher_ends_in_one_line(accelerate_file, tmp_path, name, changes, message):
    """Each of these ends with exit code 0 and a wrong run without the check."""
    recipe = {"task": "relevance", "base": "absent", "data": ["absent.jsonl"], "output_dir": str(tmp_path / "run"), "learning_rate": 1e-4}
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe | {"gradient_checkpointing": False}))
    command = ["-m", "accelerate.commands.launch", "--config_file", str(accelerate_file(name, **changes)), "--main_process_port", "0"]
    done = subprocess.run(
        [sys.executable, *command, "-m", "train", str(tmp_path / "r.yaml")], cwd=PROJECT, env=os.environ, capture_output=True, text=True
    )
    assert done.returncode != 0
    errors = {line for line in done.stderr.splitlines() if line.startswith("error: ")}
    assert len(errors) == 1
    assert message in errors.pop()
    assert not (tmp_path / "run").exists()
