"""Uncertainty of a mean over questions: percentile bootstrap intervals, and the paired bootstrap for two systems (Efron & Tibshirani).

A resample of `n` scores is a multinomial draw over their distinct values, which is the same distribution as drawing `n` of them with
replacement. Answer scores have few distinct values (exact match has two), so a million questions cost as little as a hundred.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_LEVEL = 0.95
_FEWEST = 2  # questions whose labels can differ from each other's
_COUNTS_AT_ONCE = 4_000_000  # bounds the memory of a draw over many distinct values


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of some questions with its 95 % interval. `low` and `high` are None if only one question contributes to it."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Difference(Interval):
    """A mean difference with its 95 % interval; `p` is two-sided, for no difference."""

    p: float


def interval(scores: np.ndarray, *, resamples: int = 1_000, seed: int = 0) -> Interval:
    """The mean of scores of shape (questions,), at least one, with its percentile interval."""
    values, counts = np.unique(scores, return_counts=True)
    means = _resampled_means(values, counts, resamples, seed)
    return Interval(float(scores.mean()), *_percentiles(means))


def counted_interval(counts: Mapping[float, int], *, scale: float = 1.0, resamples: int = 1_000, seed: int = 0) -> Interval:
    """`interval` for scores given as the number of questions with each value. Values are multiplied by `scale`."""
    values, numbers = _columns(counts, scale)
    return Interval(float(values @ numbers / numbers.sum()), *_percentiles(_resampled_means(values, numbers, resamples, seed)))


def counted_measure(counts: Mapping[float, int]) -> Measure:
    """`counted_interval` as a `Measure`, which has no interval for a single question. There must be at least one."""
    if sum(counts.values()) < _FEWEST:
        return Measure(next(iter(counts)))
    found = counted_interval(counts)
    return Measure(found.mean, found.low, found.high)


def paired(scores: np.ndarray, baseline: np.ndarray, *, resamples: int = 10_000, seed: int = 0) -> Difference:
    """How much better `scores` are than `baseline`; both of shape (questions,) over the same questions in the same order."""
    values, counts = np.unique(np.subtract(scores, baseline), return_counts=True)
    return _difference(values, counts, resamples, seed)


def counted_paired(differences: Mapping[float, int], *, resamples: int = 10_000, seed: int = 0) -> Difference:
    """`paired` for scores given as the number of questions with each difference."""
    return _difference(*_columns(differences, 1.0), resamples, seed)


def _difference(values: np.ndarray, counts: np.ndarray, resamples: int, seed: int) -> Difference:
    means = _resampled_means(values, counts, resamples, seed)
    return Difference(float(values @ counts / counts.sum()), *_percentiles(means), _two_sided(means))


def _two_sided(means: np.ndarray) -> float:
    """How often resampled means lie on the other side of zero, doubled; never quite 0."""
    tail = min((means <= 0).sum(), (means >= 0).sum())
    return min(1.0, 2 * (1 + int(tail)) / (1 + len(means)))


def _columns(counts: Mapping[float, int], scale: float) -> tuple[np.ndarray, np.ndarray]:
    ordered = sorted(counts.items())
    return scale * np.array([value for value, _ in ordered]), np.array([number for _, number in ordered])


def ratio(numerators: np.ndarray, denominators: np.ndarray, *, resamples: int = 1_000, seed: int = 0) -> Measure | None:
    """The ratio of two sums over questions, such as precision over the labels of all questions, or None if it is undefined.

    Both have the shape (questions,). Questions are drawn, not their labels, because the labels of one question are not independent.
    """
    if not denominators.sum():
        return None
    mean = float(numerators.sum() / denominators.sum())
    if (denominators > 0).sum() < _FEWEST:
        return Measure(mean)
    pairs, counts = np.unique(np.column_stack([numerators, denominators]), axis=0, return_counts=True)
    sums = np.concatenate([draw @ pairs for draw in _draws(counts, resamples, seed)])
    defined = sums[sums[:, 1] > 0]  # a few questions may all be drawn without a label
    return Measure(mean, *_percentiles(defined[:, 0] / defined[:, 1]))


def interval_of(statistic: Callable[[np.ndarray], float | None], count: int, *, resamples: int = 1_000, seed: int = 0) -> Measure | None:
    """A statistic of `count` questions with its interval, or None if it is undefined for the whole set.

    `statistic` receives the positions of the questions that were drawn.
    """
    whole = statistic(np.arange(count))
    if whole is None or count < _FEWEST:
        return None if whole is None else Measure(whole)
    generator = np.random.default_rng(seed)
    drawn = (statistic(generator.integers(count, size=count)) for _ in range(resamples))
    return Measure(whole, *_percentiles(np.array([value for value in drawn if value is not None])))


def _percentiles(means: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(means, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(low), float(high)


def _resampled_means(values: np.ndarray, counts: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Means of the resamples, shape (resamples,)."""
    return np.concatenate([draw @ values for draw in _draws(counts, resamples, seed)]) / counts.sum()


def _draws(counts: np.ndarray, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each distinct value is drawn in each resample, in chunks of shape (resamples in the chunk, values)."""
    total = counts.sum()
    generator = np.random.default_rng(seed)
    at_once = max(1, _COUNTS_AT_ONCE // len(counts))
    for start in range(0, resamples, at_once):
        yield generator.multinomial(total, counts / total, size=min(at_once, resamples - start))


def over_seeds(scores: np.ndarray, baseline: np.ndarray | None = None, *, resamples: int = 10_000, seed: int = 0) -> Difference:
    """The mean of scores of shape (seeds, questions), or of their differences from a baseline's (its own seeds, the same questions).

    A resample draws seeds of each side, and questions for both sides together (a two-way bootstrap: Owen 2007, "The pigeonhole
    bootstrap"): what another training would give is uncertain, and what other questions would. `p` is two-sided, for a mean of zero.
    """
    generator = np.random.default_rng(seed)
    number = scores.shape[1]
    means: list[np.ndarray] = []
    at_once = max(1, _COUNTS_AT_ONCE // number)
    for start in range(0, resamples, at_once):
        count = min(at_once, resamples - start)
        values = _mean_over_drawn_seeds(scores, count, generator)
        if baseline is not None:
            values -= _mean_over_drawn_seeds(baseline, count, generator)
        drawn = generator.multinomial(number, np.full(number, 1 / number), size=count)
        means.append((values * drawn).sum(1) / number)
    mean = float(scores.mean() - (0 if baseline is None else baseline.mean()))
    return Difference(mean, *_percentiles(found := np.concatenate(means)), _two_sided(found))


def _mean_over_drawn_seeds(scores: np.ndarray, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """(resamples, questions): each question's mean over as many seeds as there are, drawn with replacement."""
    seeds = len(scores)
    return generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) @ scores / seeds


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values of several comparisons, raised so that chance makes any of them small no more often than a single one (Holm 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    raised = itertools.accumulate(((len(order) - rank) * p_values[place] for rank, place in enumerate(order)), max)
    corrected = dict(zip(order, raised, strict=True))
    return [min(1.0, corrected[place]) for place in range(len(p_values))]
