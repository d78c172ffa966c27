"""How many questions a run will answer."""

from infer.recipe import InferRecipe
from refinery.runtime.forecast import Forecast, RowsOf


def forecast(recipe: InferRecipe, rows_of: RowsOf) -> Forecast:
    """The forecast of a run whose questions may not exist yet. What a served model will cost is unknown: its decoder decides as it goes."""
    counts = [rows_of(path) for path in recipe.questions]
    rows = sum(count for count in counts if count is not None) if None not in counts else None
    return Forecast(rows, dollars=None if recipe.endpoint else (0, 0))
