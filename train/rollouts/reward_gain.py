"""Whether GRPO gained anything: rewards at the beginning and at the end, and how many groups of rollouts could teach something."""

from collections.abc import Mapping, Sequence
from math import isfinite, nan, sqrt
from statistics import mean, variance
from typing import Any

_FEWEST_STEPS = 6  # two in each third, whose means have an error


def reward_gain(logs: Sequence[Mapping[str, Any]], *, of: str = "reward") -> dict[str, float]:
    """Mean rewards of the first and the last third of the steps, the standard error of their difference, and the share of equal groups.

    `logs` is the trainer's history, and `of` the reward in it: the whole one, or where the cost of a search changes, that of the answer.
    A group is equal if all its rollouts earned the same, so that none has an advantage. Nothing is said of fewer than six logged steps.
    """
    steps = [log for log in logs if isfinite(log.get(of, nan))]  # nan: no rollout could be rewarded
    if len(steps) < _FEWEST_STEPS:
        return {}
    third = len(steps) // 3
    first, last = ([log[of] for log in part] for part in (steps[:third], steps[-third:]))
    return {
        "first": round(mean(first), 4),
        "last": round(mean(last), 4),
        "error": round(sqrt((variance(first) + variance(last)) / third), 4),
        "equal_groups": round(mean(log["frac_reward_zero_std"] for log in steps), 4),
    }


def gain_line(gain: Mapping[str, float]) -> str:
    """One line about the gain, with what to change where the rewards did not rise by two standard errors."""
    seen = (
        f"{gain['first']:.3f} in the first third of the steps, {gain['last']:.3f} in the last; in {gain['equal_groups']:.0%} of the groups"
    )
    seen += " all rollouts earned the same, which teaches nothing"
    if gain["last"] - gain["first"] > 2 * gain["error"]:
        return seen
    return (
        f"{seen}. It learned nothing that can be seen: ask questions that the model answers right sometimes and was not trained on, "
        "or raise grpo.temperature, grpo.num_generations or learning_rate"
    )
