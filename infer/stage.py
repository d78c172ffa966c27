"""What the `infer` stage declares to the `refinery` command."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from refinery.runtime.forecast import Expected, Forecast
from refinery.runtime.recipes.stages import Stage

if TYPE_CHECKING:
    from refinery.reporting.figures import Panel


class InferStage(Stage):
    """Answer questions and look at the answers."""

    name = "infer"
    makes = "answers"
    summary = "answer questions with a decoder and score the answers"
    position = 3
    recipe_keys = frozenset({"decoder", "questions"})

    def main(self, argv: Sequence[str]) -> int:
        """Run `refinery infer ...`."""
        from infer.__main__ import main

        return main(argv)

    def commands(self) -> ModuleType:
        """`refinery answer`, `compare`, `serve` and others."""
        from infer import commands

        return commands

    def panels(self, runs: Sequence[Path]) -> "list[Panel]":
        """The figures of infer runs: accuracy against cost, selections and actions."""
        from infer.viewing.plot import panels

        return panels(runs)

    def write_page(self, runs: Sequence[Path], output: Path, *, limit: int, project: str = "") -> int:
        """Write a page that shows each question with the traces of all runs side by side."""
        from infer.viewing.page import write

        return write(runs, output, limit=limit, project=project)

    def digest(self, run: Path) -> list[tuple[str, str]]:
        """What matters about the run in its project."""
        from infer.viewing.card import digest

        return digest(run)

    def forecast(self, recipe: str, overrides: Sequence[str], expected: Expected) -> Forecast:
        """What a run of a recipe will probably take."""
        from infer.cost.forecast import forecast
        from infer.recipe import InferRecipe
        from refinery.runtime.recipes.recipe import load_recipe

        return forecast(load_recipe(recipe, InferRecipe, overrides), expected)


STAGE = InferStage()
