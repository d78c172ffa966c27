"""The accelerate files that ship: what accelerate makes of them, and what they tell their reader."""

import re
from pathlib import Path

import pytest
import yaml

from train.launch.launch import read_accelerate_config

FOLDER = Path(__file__).parent.parent / "accelerate_configs"
CONFIGS = sorted(FOLDER.glob("*.yaml"))
by_name = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)


def test_the_readme_says_what_each_file_is_for():
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)\.yaml` \|", table, flags=re.MULTILINE)) == {path.stem for path in CONFIGS}


@by_name
def test_accelerate_accepts_the_file(path):
    from accelerate.commands.config.config_args import load_config_from_file

    assert str(load_config_from_file(str(path)).distributed_type).split(".")[-1] == yaml.safe_load(path.read_text())["distributed_type"]


@by_name
def test_every_key_is_known_down_to_the_nested_ones(path):
    assert read_accelerate_config(path) == yaml.safe_load(path.read_text())


@by_name
def test_the_header_gives_the_command(path):
    assert f"--config_file accelerate_configs/{path.name} " in path.read_text()
