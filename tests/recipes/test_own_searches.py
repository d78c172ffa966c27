"""The recipes that learn from a generator's own searches: what they need is planned as their READMEs say, without a model."""

import re
import shlex
from pathlib import Path

import pytest

from refinery.cli import main
from refinery.contract.records import Question, write_records
from refinery.runtime.recipe import load_recipe
from train.launch.launch import Launch
from train.planning.plan import plan_lines
from train.recipe import TrainRecipe

ROOT = Path(__file__).parents[2]
RECIPES = [path for path in sorted(ROOT.glob("recipes/*/train/*.yaml")) if "\nmethod: grpo\n" in path.read_text(encoding="utf-8")]
ROWS = {
    ROOT / "recipes" / system / "train" / f"{cells[0].strip('`')}.yaml": cells[1:]
    for system in ("rq_rag", "search_r1")
    for line in (ROOT / "recipes" / system / "README.md").read_text(encoding="utf-8").splitlines()
    if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 8 and cells[0].startswith("`")
}


def planned(lines: list[str]) -> dict[str, float]:
    """The GiB on each GPU, by what they are for."""
    return {name: float(size) for name, size in (line.split() for line in lines if line.startswith("  ") and len(line.split()) == 2)}


def test_every_recipe_of_this_kind_is_planned_in_a_readme():
    assert {path for path in RECIPES if path.parts[-3] != "demo"} == ROWS.keys()


@pytest.mark.parametrize("path", ROWS, ids=lambda path: f"{path.parts[-3]}/{path.stem}")
def test_a_recipe_needs_what_its_readme_says(path, tmp_path):
    base, launch, *said = ROWS[path]
    asked = [Question(id=str(number), text=f"Who directed film {number}?", answers=["Maria"]) for number in range(600)]
    write_records(tmp_path / "train.jsonl", asked)
    held_out = ["validation=[]", "eval_steps=null", "metric_for_best_model=null"]
    recipe = load_recipe(path, TrainRecipe, [f"base={base.strip('`')}", f"data=[{tmp_path}/train.jsonl]", *held_out])
    lines = plan_lines(recipe, Launch(8, launch))
    memory = planned(lines)
    states = memory["optimizer"] + memory["gradients"] + memory["buffers"]
    parts = (memory["total"], memory["weights"], states, memory.get("reference", 0.0), memory["activations"])
    assert [f"{size:.1f}" for size in parts] == said
    assert any(f"of 256 rollouts; {'2,560' if path.parts[-3] == 'search_r1' else '256'} are sampled at once" in line for line in lines)
    assert memory["total"] < 75


def test_the_studys_questions_are_divided_and_its_recipe_planned_by_its_own_commands(tmp_path, monkeypatch, capsys):
    text = (ROOT / "recipes/real/grpo.yaml").read_text(encoding="utf-8")
    (split,) = re.findall(r"^#   refinery (split .*)$", text, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    assert main([word.replace("runs/real", str(tmp_path)) for word in shlex.split(split)]) == 0
    files = {name: f"{tmp_path}/questions/{name}.jsonl" for name in ("train", "validation")}
    recipe = load_recipe(
        Path("recipes/real/grpo.yaml"),
        TrainRecipe,
        ["base=HuggingFaceTB/SmolLM2-135M-Instruct", f"data=[{files['train']}]", f"validation=[{files['validation']}]"],
    )
    lines = plan_lines(recipe, Launch(1, "none"))
    assert "questions    251; 8 are asked at once, 4 rollouts of each as trees of 2 x 2" in lines
    assert capsys.readouterr().out.startswith(f"{tmp_path}/questions: train 251, validation 42, test 126\n")
