"""Supervised fine-tuning: the model learns to write each row's reply, or to give its label, as its family does."""

import importlib
from typing import cast

from train.method import Family, Method
from train.settings import TrainSettings


def _family(recipe: TrainSettings) -> Family:
    return cast(Family, importlib.import_module(f"train.families.{recipe.family}"))


METHOD = Method(_family)
