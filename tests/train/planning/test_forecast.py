"""What training will need, before its rows exist."""

from refinery.runtime.forecast import Expected
from train.planning.forecast import forecast
from train.recipe import TrainRecipe


def test_rows_and_memory_are_planned_and_time_is_unknown(tiny_bases):
    values = {"task": "refinement", "base": str(tiny_bases["tied"]), "data": ["x"], "output_dir": "x", "learning_rate": 1e-5}
    planned = forecast(TrainRecipe.model_validate(values | {"max_length": 512}), Expected(lambda path: 800))

    assert (planned.rows, planned.seconds, planned.gpu_seconds) == (800, None, None)
    assert (planned.memory_bytes or 0) > 1e6
