"""What training will probably take and need, before its rows exist. `refinery train RECIPE --dry-run` plans exactly once they do."""

from refinery.errors import RefineryError
from refinery.runtime.forecast import Expected, Forecast, Range, gpu_seconds_of, seconds_of
from train.launch.launch import launch_from_env
from train.planning.memory import estimate
from train.recipe import TrainRecipe

# Operations per parameter and token: forward and backward with frozen weights, with all weights trained, and forward alone.
_FROZEN, _TRAINED, _SAMPLED = 4, 6, 2
_SHORTEST_ROW = 60  # tokens


def forecast(recipe: TrainRecipe, expected: Expected) -> Forecast:
    """The forecast of a run whose rows may not exist yet."""
    weights = recipe.data_weights or [1.0] * len(recipe.data)
    counts = [count * weight for path, weight in zip(recipe.data, weights, strict=True) if (count := expected.rows_of(path)) is not None]
    rows = round(sum(counts)) if counts else None
    try:
        parameters, memory = estimate(recipe, launch_from_env(), length=recipe.max_length)
    except (RefineryError, OSError):  # the base is not here, or its family has no estimate
        return Forecast(rows=rows, seconds=None, gpu_seconds=None, base=recipe.base)
    if rows is None:
        return Forecast(seconds=None, memory_bytes=memory.total, gpu_seconds=None, base=recipe.base)
    per_token = (_TRAINED if recipe.strategy == "full" else _FROZEN) * parameters.base
    if recipe.method == "grpo":  # each question is answered several times, which takes a forward pass, before the answers are trained on
        per_token = (per_token + _SAMPLED * parameters.base) * recipe.grpo.num_generations
    shortest, longest = _tokens(recipe, rows)
    operations = shortest * per_token, longest * per_token
    seconds, gpu_seconds = seconds_of(operations), gpu_seconds_of(operations)
    return Forecast(rows, seconds=seconds, memory_bytes=memory.total, gpu_seconds=gpu_seconds, base=recipe.base)


def _tokens(recipe: TrainRecipe, rows: int) -> Range:
    """The tokens of all rows that are trained on: of `epochs` over the rows, or of `max_steps`, whose packed rows are full."""
    lengths = _SHORTEST_ROW, recipe.max_length / 2
    passes = rows * recipe.epochs
    if recipe.max_steps > 0:
        batch = recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps * launch_from_env().processes
        passes = recipe.max_steps * batch / (recipe.grpo.num_generations if recipe.method == "grpo" else 1)
        lengths = (recipe.max_length, recipe.max_length) if recipe.packing else lengths
    return passes * lengths[0], passes * lengths[1]
