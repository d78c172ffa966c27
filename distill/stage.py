"""What the `distill` stage declares to the `refinery` command."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from refinery.runtime.concurrency.gc_tuning import rare_collections
from refinery.runtime.forecast import Expected, Forecast
from refinery.runtime.recipes.stages import Stage

if TYPE_CHECKING:
    from refinery.reporting.figures import Panel


class DistillStage(Stage):
    """Label questions with a teacher."""

    name = "distill"
    makes = "labels"
    summary = "label questions with a teacher"
    position = 1
    recipe_keys = frozenset({"task", "questions"})

    def main(self, argv: Sequence[str]) -> int:
        """Run `refinery distill ...`."""
        with rare_collections():  # the garbage of imports and of labels has no cycles
            from distill.__main__ import main

            return main(argv)

    def commands(self) -> ModuleType:
        """The package of the stage's commands."""
        from distill import commands

        return commands

    def panels(self, runs: Sequence[Path]) -> "list[Panel]":
        """The figures of distill runs: the balance of labels, and costs."""
        from distill.viewing.plot import panels

        return panels(runs)

    def write_page(self, runs: Sequence[Path], output: Path, *, limit: int, project: str = "") -> int:
        """Write a page that shows labels with the prompts and replies they were made from."""
        from distill.viewing.page import write

        return write(runs, output, limit=limit, project=project)

    def digest(self, run: Path) -> list[tuple[str, str]]:
        """What matters about the run in its project."""
        from distill.viewing.card import digest

        return digest(run)

    def forecast(self, recipe: str, overrides: Sequence[str], expected: Expected) -> Forecast:
        """What a run of a recipe will probably take."""
        from distill.forecast import forecast
        from distill.recipe import DistillRecipe
        from refinery.runtime.recipes.recipe import load_recipe

        return forecast(load_recipe(recipe, DistillRecipe, overrides), expected)


STAGE = DistillStage()
