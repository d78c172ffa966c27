"""The papers' inference recipes and tables: recipes are read, and the commands in the systems' READMEs fit together, without a model.

Each README's bash blocks are run as one script by bash itself, with the commands in it replaced by functions that only note what they
were called with; so loops and variables mean here what they mean to a reader.
"""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from helpers.paper_tables import runs_of

from distill.recipe import DistillRecipe
from infer.module_recipe import ModuleRecipe
from infer.recipe import InferRecipe
from refinery.cli import build_parser
from refinery.project.project import read_project
from refinery.retrievers.search.build import retriever_options
from refinery.runtime.recipe import load_recipe
from refinery.runtime.run.command import stage_parser
from train.recipe import TrainRecipe

ROOT = Path(__file__).parents[2]
SYSTEMS = ["migres", "ra_isf", "re_thinking", "rq_rag", "search_r1"]
RECIPES = sorted(path for system in SYSTEMS for path in ROOT.glob(f"recipes/{system}/infer/*.yaml"))
TABLES = sorted(ROOT.glob("recipes/*/tables/*.yaml"))
STAGES = {"distill": DistillRecipe, "train": TrainRecipe, "infer": InferRecipe}
MODULES = "evaluate-modules"  # a command that runs a recipe, as a stage does
_NOTED = "\x1e"
_SCRIPT = re.compile(r"^recipes/\w+/reproduce\.sh", re.MULTILINE)
_FUNCTIONS = "".join(
    f"{name}() {{ printf '%s\\0' {name} \"$@\"; printf '{_NOTED}'; }}\n" for name in ("refinery", "accelerate", "pip", "vllm", "reproduce")
)


@cache
def commands(system: str) -> list[list[str]]:
    """Every command of a system's README as bash calls it, and of the steps that reproduce its paper."""
    text = (ROOT / "recipes" / system / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^( *)```bash\n(.*?)^\1```", text, flags=re.DOTALL | re.MULTILINE)
    # python is only asked for a folder; no other program is found.
    python = "python() { [ $BASH_SUBSHELL = 0 ] || printf a/folder; }\n"
    script = f"set -u; PATH=\n{_FUNCTIONS}{python}" + _SCRIPT.sub("reproduce", "".join(block for _, block in blocks))
    done = subprocess.run(["/bin/bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return [called.split("\0")[:-1] for called in done.stdout.split(_NOTED)[:-1]] + reproduced(system)


def reproduced(system: str) -> list[list[str]]:
    """The commands of `reproduce.yaml`, if there is one."""
    file = ROOT / "recipes" / system / "reproduce.yaml"
    steps = read_project(file).steps.values() if file.exists() else []
    return [["refinery", *words] for step in steps for words in (step.command, *step.then)]


@cache
def stage_recipes(system: str, stage: str) -> list[tuple[str, object]]:
    """The recipe of every command of one stage, with its overrides, under what it was called with."""
    parsed = []
    for command in commands(system):
        if command[:2] == ["refinery", stage] or (command[0] == "accelerate" and command[command.index("-m") + 1] == stage):
            arguments = command[2:] if command[0] == "refinery" else command[command.index("-m") + 2 :]
            known = stage_parser(stage, "", shows_rows=True, plans=True).parse_intermixed_args(arguments)
            parsed.append((" ".join(command), load_recipe(ROOT / known.recipe, STAGES.get(stage, ModuleRecipe), known.overrides)))
    return parsed


def made_runs(system: str) -> list[Path]:
    """The folders of the runs that the README's commands make, of whole decoders and of modules."""
    return [recipe.output_dir for stage in ("infer", MODULES) for _, recipe in stage_recipes(system, stage)]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parts[-3]}/{path.stem}")
def test_a_recipe_is_read_with_the_options_of_its_decoder_and_retriever(path):
    recipe = load_recipe(path, InferRecipe)
    assert recipe.decoder_options(str(path))
    if recipe.retriever and not recipe.retriever.index:
        assert retriever_options(recipe.retriever)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parts[-3]}/{path.stem}")
def test_a_recipe_opens_with_its_command_hardware_cost_and_aim(path):
    text = path.read_text(encoding="utf-8")
    assert re.search(rf"^#   refinery infer {path.relative_to(ROOT)}( [\w.]+=\S+)*$", text, re.MULTILINE)
    for part in ("# Hardware: ", "Cost: ", "# Aims at: "):
        assert part in text.split("decoder:")[0]


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_infer_command_of_a_readme_fits_its_recipe_and_decoder(system):
    recipes = stage_recipes(system, "infer")
    assert recipes
    for command, recipe in recipes:
        assert recipe.decoder_options(command)
        assert recipe.retriever or recipe.decoder in ("direct", "least_to_most"), command


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_two_commands_of_a_readme_write_the_same_run(system):
    folders = made_runs(system)
    assert len(folders) == len(set(folders))


@pytest.mark.parametrize("system", ["migres", "ra_isf"])
def test_every_module_that_a_readme_measures_fits_its_recipe(system):
    recipes = stage_recipes(system, MODULES)
    assert recipes
    for command, recipe in recipes:
        recipe.check(command)
        assert "judge" in recipe.trimmed().sub_models or recipe.module in ("own_knowledge", "first_search")


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("stage", ["distill", "train"])
def test_every_distill_and_train_command_of_a_readme_fits_its_recipe(system, stage):
    assert all(recipe.output_dir for _, recipe in stage_recipes(system, stage))


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_other_command_of_a_readme_is_accepted(system):
    parser = build_parser()
    for command in commands(system):
        if command[0] == "refinery" and command[1] not in STAGES:
            assert parser.parse_args(command[1:]).run


@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parts[-3]}/{path.stem}")
def test_a_command_of_the_readme_makes_every_run_that_a_table_shows(path):
    made = set(made_runs(path.parts[-3]))
    assert runs_of(path) <= made
    assert f"refinery report {path.relative_to(ROOT)}" in {" ".join(command) for command in commands(path.parts[-3])}


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_run_that_a_readme_files_under_a_table_is_shown_there(system):
    shown = {run for path in TABLES if path.parts[-3] == system for run in runs_of(path)}
    made = made_runs(system)
    assert {run for run in made if re.search(r"runs/\w+/table_\d+/", str(run))} <= shown


@pytest.mark.parametrize(
    "path", [path for path in TABLES if "metric: judge" in path.read_text()], ids=lambda path: f"{path.parts[-3]}/{path.stem}"
)
def test_every_run_of_a_judged_table_is_judged(path):
    judged = {Path(command[2]) for command in commands(path.parts[-3]) if command[:2] == ["refinery", "judge"]}
    assert runs_of(path) <= judged
