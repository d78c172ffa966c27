"""The endpoints of a resumed run may have moved: a cluster gives a server another address with each job."""

import logging
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import Any

from refinery.llms.served.endpoint import EndpointConfig
from refinery.runtime.run.run_dir import read_run

_log = logging.getLogger(__name__)


def addresses(configs: Iterable[EndpointConfig]) -> frozenset[str]:
    """The recipe's keys of the endpoints' addresses."""
    return frozenset(config.key_of("base_url") for config in configs)


def warn_of_moved_endpoints(output_dir: Path, configs: Iterable[EndpointConfig]) -> None:
    """Warn if a resumed run has a new address, which may serve another model, because replies are stored under the model's name."""
    if not (output_dir / "run.json").exists():
        return
    earlier = read_run(output_dir)["recipe"]
    for config in configs:
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
