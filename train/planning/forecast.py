"""What training will need before its rows exist. `refinery train RECIPE --dry-run` counts its steps and tokens once they do."""

from refinery.errors import RefineryError
from refinery.runtime.forecast import Expected, Forecast
from train.launch.launch import launch_from_env
from train.planning.memory import estimate
from train.recipe import TrainRecipe


def forecast(recipe: TrainRecipe, expected: Expected) -> Forecast:
    """The forecast of a run whose rows may not exist yet: their number and the memory. Its time is unknown."""
    weights = recipe.data_weights or [1.0] * len(recipe.data)
    counts = [count * weight for path, weight in zip(recipe.data, weights, strict=True) if (count := expected.rows_of(path)) is not None]
    rows = round(sum(counts)) if counts else None
    try:
        memory = estimate(recipe, launch_from_env(), length=recipe.max_length)[1].total
    except (RefineryError, OSError):  # the base is not here, or its family has no estimate
        memory = None
    return Forecast(rows, seconds=None, memory_bytes=memory, gpu_seconds=None)
