"""What the `train` stage declares to the `refinery` command."""

from collections.abc import Sequence

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

    def forecast(self, recipe: str, overrides: Sequence[str], expected: Expected) -> Forecast:
        """What a run of a recipe will probably take."""
        from refinery.runtime.recipe import load_recipe
        from train.planning.plan import forecast
        from train.recipe import TrainRecipe

        return forecast(load_recipe(recipe, TrainRecipe, overrides), expected)


STAGE = TrainStage()
