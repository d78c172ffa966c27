"""What the `distill` stage declares to the `refinery` command."""

from collections.abc import Sequence
from typing import Any

from refinery.runtime.concurrency.gc_tuning import rare_collections
from refinery.runtime.forecast import Expected, Forecast
from refinery.runtime.recipes.stages import Stage


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
            return super().main(argv)

    def recipe_type(self) -> Any:
        """See `Stage.recipe_type`."""
        from distill.recipe import DistillRecipe

        return DistillRecipe

    def forecast(self, recipe: str, overrides: Sequence[str], expected: Expected, *, accelerate: str | None = None) -> Forecast:
        """What a run of a recipe will probably take."""
        from distill.forecast import forecast
        from refinery.runtime.recipe import load_recipe

        return forecast(load_recipe(recipe, self.recipe_type(), overrides), expected)


STAGE = DistillStage()
