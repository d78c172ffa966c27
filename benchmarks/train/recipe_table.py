"""The table of accelerate_configs/README.md: memory and time of the shipped training recipes on one and on eight GPUs of 80 GB.

    python -m benchmarks.train.recipe_table

Memory is the plan's (train/planning/memory.py), time as in train/planning/duration.py. Nothing is downloaded or measured.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from refinery.llms.weights.shapes import SHAPES
from refinery.reporting.markdown import table
from refinery.runtime.recipe import load_recipe
from train.launch.launch import Launch
from train.method import method_of
from train.planning.duration import time_of_a_token
from train.planning.memory import estimate
from train.planning.recomputation import needed_share, with_share
from train.recipe import TrainRecipe

_RECIPES = Path(__file__).parents[2] / "recipes"
_SYSTEMS = ("rq_rag", "ra_isf", "migres", "re_thinking")
_FREE = 79.6 * 2**30  # of an H100 of 80 GB
_MILLIONS = 10  # of tokens
HEAD = (
    "recipes", "GiB on one GPU", "GiB on each of eight", f"hours for {_MILLIONS} million tokens, one H200", "eight",
)  # fmt: skip


def rows(names: str = "*") -> Iterator[tuple[str, ...]]:
    """A row for each recipe whose file's name matches; recipes with equal figures share one."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for system in _SYSTEMS:
        for path in sorted((_RECIPES / system / "train").glob(f"{names}.yaml")):
            recipe = load_recipe(path, TrainRecipe)
            if recipe.base in SHAPES and not method_of(recipe).plan:  # the recipes' README has the plan of GRPO
                found[_figures(recipe)].append(f"`{system}/{path.stem}`")
    return ((", ".join(same), *figures) for figures, same in found.items())


def _figures(recipe: TrainRecipe) -> tuple[str, ...]:
    one, hours = _on(recipe, Launch(1, "none"))
    eight, hours_of_eight = _on(recipe, Launch(8, "ddp"))
    if "no room" in eight:
        eight, hours_of_eight = _on(recipe, Launch(8, "zero3"))
    return one, eight, hours, hours_of_eight


def _on(recipe: TrainRecipe, launch: Launch) -> tuple[str, str]:
    """(GiB on each GPU, hours) with as few layers recomputed as there is memory for."""
    decided = recipe
    if recipe.gradient_checkpointing == "auto":
        decided = with_share(recipe, needed_share(recipe, launch, length=recipe.max_length, free=_FREE, on_gpu=True))
    share = decided.recomputed_share
    parameters, memory = estimate(decided, launch, length=recipe.max_length)
    gib = f"{memory.total / 2**30:.1f}"
    if memory.total > _FREE:
        return f"no room ({gib})", ""
    recomputed = f", {share:.0%} recomputed" if share else ""
    time = time_of_a_token(decided, parameters)
    hours = "not measured"
    if time:
        measured = time.measured and launch.processes == 1
        hours = f"{'' if measured else '~'}{time.seconds * _MILLIONS * 1e6 / 3600 / launch.processes:.2f}"
    return f"{gib}{f' ({launch.sharding})' if launch.processes > 1 else ''}{recomputed}", hours


if __name__ == "__main__":
    print("\n".join(table(HEAD, [*rows()])))
