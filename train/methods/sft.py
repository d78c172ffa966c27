"""Supervised fine-tuning: the model learns to write each row's reply, or to give its label, as its family does."""

import importlib
from typing import TYPE_CHECKING, cast

from train.methods.base import Family, Method

if TYPE_CHECKING:
    from train.recipe import TrainRecipe


def _family(recipe: "TrainRecipe") -> Family:
    return cast(Family, importlib.import_module(f"train.families.{recipe.family}"))


METHOD = Method(_family)
