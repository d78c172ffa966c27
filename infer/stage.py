"""What the `infer` stage declares to the `refinery` command."""

from collections.abc import Sequence
from typing import Any

from refinery.runtime.forecast import Expected, Forecast
from refinery.runtime.recipes.stages import Stage


class InferStage(Stage):
    """Answer questions and look at the answers."""

    name = "infer"
    makes = "answers"
    summary = "answer questions with a decoder and score the answers"
    position = 3
    recipe_keys = frozenset({"decoder", "questions"})

    def recipe_type(self) -> Any:
        """See `Stage.recipe_type`."""
        from infer.recipe import InferRecipe

        return InferRecipe

    def forecast(self, recipe: str, overrides: Sequence[str], expected: Expected, *, accelerate: str | None = None) -> Forecast:
        """What a run of a recipe will probably take."""
        from infer.cost.forecast import forecast
        from refinery.runtime.recipe import load_recipe

        return forecast(load_recipe(recipe, self.recipe_type(), overrides), expected)


STAGE = InferStage()
