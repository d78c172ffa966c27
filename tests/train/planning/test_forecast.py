"""What training will probably take, before its rows exist."""

import pytest

from refinery.runtime.forecast import Expected, Forecast
from train.planning.forecast import forecast
from train.recipe import TrainRecipe


def forecast_of(base, **changes) -> Forecast:
    values = {"task": "refinement", "base": str(base), "data": ["x"], "output_dir": "x", "learning_rate": 1e-5, "epochs": 1}
    values |= {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_length": 512}
    return forecast(TrainRecipe.model_validate(values | changes), Expected(lambda path: 800))


def hours(found: Forecast) -> list[float]:
    assert found.seconds is not None
    return [*found.seconds]


def test_steps_that_cover_all_rows_once_take_as_long_as_an_epoch(tiny_bases):
    assert hours(forecast_of(tiny_bases["tied"], max_steps=100)) == pytest.approx(hours(forecast_of(tiny_bases["tied"])))


def test_a_tenth_of_the_steps_takes_a_tenth_of_the_time(tiny_bases):
    full, tenth = forecast_of(tiny_bases["tied"]), forecast_of(tiny_bases["tied"], max_steps=10)
    assert [10 * seconds for seconds in hours(tenth)] == pytest.approx(hours(full))


def test_packed_steps_have_as_many_tokens_as_fit(tiny_bases):
    shortest, longest = hours(forecast_of(tiny_bases["tied"], max_steps=10, packing=True))
    assert longest == pytest.approx(2 * hours(forecast_of(tiny_bases["tied"], max_steps=10))[1])
    assert shortest == pytest.approx(512 / 60 * hours(forecast_of(tiny_bases["tied"], max_steps=10))[0])


def test_steps_of_grpo_are_of_rollouts_and_not_of_questions(tiny_bases):
    rollouts = {"retriever": {"passages": "p"}}
    grpo = {"method": "grpo", "rollouts": rollouts, "grpo": {"num_generations": 8}}
    assert hours(forecast_of(tiny_bases["tied"], max_steps=800, **grpo)) == pytest.approx(hours(forecast_of(tiny_bases["tied"], **grpo)))
