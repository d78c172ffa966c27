"""What the `train` stage declares to the `refinery` command."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from refinery.runtime.forecast import Expected, Forecast
from refinery.runtime.recipes.stages import Stage

if TYPE_CHECKING:
    from refinery.reporting.figures import Panel


class TrainStage(Stage):
    """Fine-tune models on labels."""

    name = "train"
    makes = "models"
    summary = "fine-tune a model on the labels"
    position = 2
    recipe_keys = frozenset({"task", "base", "data"})
    page_rows = "held-out rows"

    def main(self, argv: Sequence[str]) -> int:
        """Run `refinery train ...`."""
        from train.__main__ import main

        return main(argv)

    def commands(self) -> ModuleType:
        """`refinery merge`."""
        from train import commands

        return commands

    def panels(self, runs: Sequence[Path]) -> "list[Panel]":
        """Losses, scores and learning rates, step by step."""
        from train.viewing.plot import panels

        return panels(runs)

    def write_page(self, runs: Sequence[Path], output: Path, *, limit: int, project: str = "") -> int:
        """Write a page with curves, settings, training rows and held-out answers."""
        from train.viewing.page import write

        return write(runs, output, limit=limit, project=project)

    def digest(self, run: Path) -> list[tuple[str, str]]:
        """What matters about the run in its project."""
        from train.viewing.card import digest

        return digest(run)

    def forecast(self, recipe: str, overrides: Sequence[str], expected: Expected) -> Forecast:
        """What a run of a recipe will probably take."""
        from refinery.runtime.recipes.recipe import load_recipe
        from train.planning.plan import forecast
        from train.recipe import TrainRecipe

        return forecast(load_recipe(recipe, TrainRecipe, overrides), expected)


STAGE = TrainStage()
