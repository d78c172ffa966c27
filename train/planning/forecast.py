"""What training will probably take and need, before its rows exist. `refinery train RECIPE --dry-run` plans exactly once they do."""

from refinery.errors import RefineryError
from refinery.runtime.forecast import Forecast, RowsOf, seconds_of
from train.launch.launch import launch_from_env
from train.planning.memory import estimate
from train.recipe import TrainRecipe

# Operations per parameter and token: forward and backward with frozen weights, and with all weights trained.
_FROZEN, _TRAINED = 4, 6
_SHORTEST_ROW = 60  # tokens


def forecast(recipe: TrainRecipe, rows_of: RowsOf) -> Forecast:
    """The forecast of a run whose rows may not exist yet."""
    counts = [count for path in recipe.data if (count := rows_of(path)) is not None]
    rows = sum(counts) if counts else None
    try:
        parameters, memory = estimate(recipe, launch_from_env(), length=recipe.max_length)
    except (RefineryError, OSError):  # the base is not here, or its family has no estimate
        return Forecast(rows=rows, seconds=None, gpu_seconds=None)
    if rows is None:
        return Forecast(seconds=None, memory_bytes=memory.total, gpu_seconds=None)
    per_token = (_TRAINED if recipe.strategy == "full" else _FROZEN) * parameters.base
    trained = rows * recipe.epochs * per_token
    seconds = seconds_of((trained * _SHORTEST_ROW, trained * recipe.max_length / 2))
    return Forecast(rows, seconds=seconds, memory_bytes=memory.total, gpu_seconds=seconds)
