"""What the `train` stage declares to the `refinery` command."""

from collections.abc import Sequence
from typing import Any

from refinery.runtime.forecast import Expected, Forecast
from refinery.runtime.recipes.stages import Stage


class TrainStage(Stage):
    """Fine-tune models on labels."""

    name = "train"
    makes = "models"
    summary = "fine-tune a model on the labels"
    position = 2
    recipe_keys = frozenset({"task", "base", "data"})
    page_rows = "held-out rows"

    def recipe_type(self) -> Any:
        """See `Stage.recipe_type`."""
        from train.recipe import TrainRecipe

        return TrainRecipe

    def forecast(self, recipe: str, overrides: Sequence[str], expected: Expected, *, accelerate: str | None = None) -> Forecast:
        """What a run of a recipe will probably take."""
        from refinery.runtime.recipe import load_recipe
        from train.planning.plan import forecast

        return forecast(load_recipe(recipe, self.recipe_type(), overrides), expected, accelerate)


STAGE = TrainStage()
