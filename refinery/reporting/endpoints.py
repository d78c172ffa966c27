"""What the endpoints of a labeling run were asked, from its `metrics.json`."""

from collections.abc import Mapping
from typing import Any

_ROLES = ("teacher", "strong", "judge", "target_endpoint")


def spent_by_role(metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Calls, tokens and cost of each endpoint of a run by its role: teacher, fallback_1, ..., target_endpoint."""
    return {role: value for role, value in metrics.items() if value and (role in _ROLES or role.startswith("fallback_"))}


def cached_in_full(spent: Mapping[str, Any]) -> str:
    """What to say after an endpoint's cost if it is an upper bound, because its price has none for cached tokens; else empty."""
    return " (cached tokens counted in full)" if spent.get("num_cached_tokens_in_full") else ""


def total_cost(metrics: Mapping[str, Any]) -> float | None:
    """What all endpoints of a run cost together; None if a part of it is unknown or no endpoint was asked."""
    costs = [spent["cost_usd"] for spent in spent_by_role(metrics).values()]
    return sum(costs) if costs and None not in costs else None
