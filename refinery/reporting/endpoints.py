"""The calls and cost of a labeling run's endpoints, from its `metrics.json`."""

from collections.abc import Mapping
from typing import Any

_ROLES = ("teacher", "strong", "judge", "target_endpoint")


def spent_by_role(metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Calls, tokens and cost of each endpoint of a run by its role: teacher, fallback_1, ..., target_endpoint."""
    return {role: value for role, value in metrics.items() if value and (role in _ROLES or role.startswith("fallback_"))}


def cached_in_full(spent: Mapping[str, Any]) -> str:
    """A remark after an endpoint's cost if it is an upper bound, because cached tokens have no separate price; else empty."""
    return " (cached tokens counted in full)" if spent.get("num_cached_tokens_in_full") else ""


def total_cost(metrics: Mapping[str, Any]) -> float | None:
    """The total cost of a run's endpoints; None if part of it is unknown or no endpoint was called."""
    costs = [spent["cost_usd"] for spent in spent_by_role(metrics).values()]
    return sum(costs) if costs and None not in costs else None
