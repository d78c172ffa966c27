"""A recipe of each strategy over a tiny Llama."""

import pytest
from helpers.family_rows import SHORT_RUN
from helpers.strategy_runs import LABELS, TRAJECTORIES

from refinery.contract.records import write_records
from train.recipe import TrainRecipe


@pytest.fixture(scope="module")
def recipe(tiny_bases, tmp_path_factory):
    """A recipe of a few steps over the untied tiny base, in a folder of its own."""

    def build(**changes) -> TrainRecipe:
        folder = tmp_path_factory.mktemp("strategy")
        write_records(folder / "refinement.jsonl", TRAJECTORIES)
        write_records(folder / "self_knowledge.jsonl", LABELS)
        values = {
            "task": "refinement",
            "base": str(tiny_bases["untied"]),
            "data": [folder / f"{changes.get('task', 'refinement')}.jsonl"],
            "output_dir": folder / "run",
            "max_steps": 3,
        }
        return TrainRecipe.model_validate(SHORT_RUN | values | changes)

    return build
