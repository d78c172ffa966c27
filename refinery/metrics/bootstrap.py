"""How sure a mean over questions is: percentile bootstrap intervals, and the paired bootstrap for two systems (Efron & Tibshirani).

A resample of `n` scores is a multinomial draw over their distinct values, which is the same distribution as drawing `n` of them with
replacement. Answer scores have few distinct values (exact match has two), so a million questions cost as little as a hundred.
"""

from dataclasses import dataclass

import numpy as np

_LEVEL = 0.95
_COUNTS_AT_ONCE = 4_000_000  # bounds the memory of a draw over many distinct values


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference(Interval):
    """A mean difference with its 95 % interval; `p` is two-sided, for no difference."""

    p: float


def interval(scores: np.ndarray, *, resamples: int = 1_000, seed: int = 0) -> Interval:
    """The mean of scores of shape (questions,), at least one, with its percentile interval."""
    means = _resampled_means(scores, resamples, seed)
    return Interval(float(scores.mean()), *_percentiles(means))


def paired(scores: np.ndarray, baseline: np.ndarray, *, resamples: int = 10_000, seed: int = 0) -> Difference:
    """How much better `scores` are than `baseline`; both of shape (questions,) over the same questions in the same order."""
    differences = np.subtract(scores, baseline)
    means = _resampled_means(differences, resamples, seed)
    tail = min((means <= 0).sum(), (means >= 0).sum())
    p = min(1.0, 2 * (1 + int(tail)) / (1 + resamples))
    return Difference(float(differences.mean()), *_percentiles(means), p)


def _percentiles(means: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(means, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(low), float(high)


def _resampled_means(scores: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Means of the resamples, shape (resamples,)."""
    values, counts = np.unique(scores, return_counts=True)
    generator = np.random.default_rng(seed)
    at_once = max(1, _COUNTS_AT_ONCE // len(values))
    draws = [
        generator.multinomial(len(scores), counts / len(scores), size=min(at_once, resamples - start)) @ values
        for start in range(0, resamples, at_once)
    ]
    return np.concatenate(draws) / len(scores)
