"""The recipes of retrievers, and the commands that their README and headers give."""

import re
import shlex
from pathlib import Path

import pytest

from refinery.cli import build_parser
from refinery.retrievers.search.build import load_retriever_config, retriever_options

FOLDER = Path(__file__).parents[2] / "recipes" / "retrieval"
RECIPES = sorted(FOLDER.glob("*.yaml"))
BLOCKS = re.findall(r"```bash\n(.*?)```", (FOLDER / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
HEADERS = "\n".join(recipe.read_text(encoding="utf-8") for recipe in RECIPES)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()] + re.findall(r"^#   .*?(refinery .*)$", HEADERS, flags=re.MULTILINE)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_valid_with_its_options(recipe):
    config = load_retriever_config(recipe)
    retriever_options(config)
    assert recipe.stem.startswith(config.name)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_accepted(command):
    arguments = shlex.split(command, comments=True)
    assert build_parser().parse_args(arguments[1:]).run
