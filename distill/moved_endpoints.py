"""Warn if an endpoint of a resumed run has moved."""

import logging
from functools import reduce
from typing import Any

from distill.recipe import DistillRecipe
from refinery.runtime.run_dir import read_run

_log = logging.getLogger(__name__)


def warn_of_moved_endpoints(recipe: DistillRecipe) -> None:
    """Warn if a resumed run has a new address, which may serve another model, because replies are stored under the model's name."""
    if not (recipe.output_dir / "run.json").exists():
        return
    earlier = read_run(recipe.output_dir)["recipe"]
    for config in recipe.endpoints.values():
        key = config.key_of("base_url")
        before, now = _value_at(earlier, key), config.base_url
        if _value_at(earlier, config.key_of("model")) and before != now:
            message = "%s was %s and is now %s: earlier replies of '%s' are reused. To ask it again, choose another output_dir."
            _log.warning(message, key, before, now, config.model)


def _value_at(values: Any, key: str) -> Any:
    """The value at a whole key such as `fallbacks.0.model`, or None if there is none."""
    try:
        return reduce(lambda part, name: part[int(name) if isinstance(part, list) else name], key.split("."), values)
    except (LookupError, TypeError):
        return None
