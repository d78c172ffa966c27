"""What the `distill` stage declares to the `refinery` command."""

from collections.abc import Sequence

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

    def forecast(self, recipe: str, overrides: Sequence[str], expected: Expected) -> Forecast:
        """What a run of a recipe will probably take."""
        from distill.forecast import forecast
        from distill.recipe import DistillRecipe
        from refinery.runtime.recipe import load_recipe

        return forecast(load_recipe(recipe, DistillRecipe, overrides), expected)


STAGE = DistillStage()
