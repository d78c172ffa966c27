from pathlib import Path

import pytest
import yaml

CONFIGS = sorted((Path(__file__).parent.parent / "accelerate_configs").glob("*.yaml"))
by_name = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)


def test_every_way_to_launch_has_its_file():
    assert {path.stem for path in CONFIGS} == {"single", "ddp", "ddp_cpu", "zero2", "zero3", "fsdp2"}


@by_name
def test_accelerate_accepts_the_file(path):
    from accelerate.commands.config.config_args import load_config_from_file

    assert str(load_config_from_file(str(path)).distributed_type).split(".")[-1] == yaml.safe_load(path.read_text())["distributed_type"]


@by_name
def test_every_nested_key_is_one_that_accelerate_launch_knows(path):
    from accelerate.commands.launch import launch_command_parser

    known = {action.dest for action in launch_command_parser()._actions}
    values = yaml.safe_load(path.read_text())
    nested = {key for part in ("deepspeed_config", "fsdp_config") for key in values.get(part, {})}
    assert nested <= known


@by_name
def test_the_header_gives_the_command(path):
    assert f"--config_file accelerate_configs/{path.name} " in path.read_text()
