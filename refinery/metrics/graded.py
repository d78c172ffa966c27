"""Measures of a question's labels, or of a module's replies.

Each question contributes counts, whose ratios over all questions are precision, recall and the like.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refinery.metrics.bootstrap import Measure

# Measures that are not fractions, with the number of decimals to show: counts per question, and a ratio.
_PLAIN = {"searches": 1, "queries": 1, "passages": 1, "positive per negative": 2}


@dataclass(frozen=True, slots=True)
class Graded:
    """One question's part of every measure, as a numerator and a denominator; the measure is the ratio of their sums over questions.

    `correct` counts the labels that are right; a partly right label counts as a fraction. `scored` holds, for labels with probabilities,
    the probability of the positive label and whether the annotations give that label.
    """

    counts: Mapping[str, tuple[float, float]]
    correct: float
    scored: Sequence[tuple[float, bool]] = ()


def graded_labels(pairs: Sequence[tuple[bool, bool]], *, missed: int = 0, scored: Sequence[tuple[float, bool]] = ()) -> Graded:
    """Labels as (labeled positive, annotated as positive), and positives that got no label because the row was rejected."""
    hits = sum(said and gold for said, gold in pairs)
    right = sum(said == gold for said, gold in pairs)
    found = overlap(hits, sum(said for said, _ in pairs), sum(gold for _, gold in pairs) + missed)
    return Graded(found | {"accuracy": (right, len(pairs))}, right, scored)


def overlap(hits: float, given: float, wanted: float) -> dict[str, tuple[float, float]]:
    """Precision, recall and F1 when `hits` of the `given` labels are among the `wanted` ones."""
    return {"precision": (hits, given), "recall": (hits, wanted), "F1": (2 * hits, given + wanted)}


def measure_scale(name: str) -> int:
    """The factor for displaying a measure: 100 for a fraction, else 1."""
    return 1 if name in _PLAIN else 100


def shown_measure(name: str, mean: float, low: float | None, high: float | None) -> str:
    """A measure with its interval, or with a note that it rests on a single question. Fractions are shown in percent."""
    shown = [f"{measure_scale(name) * value:.{_PLAIN.get(name, 1)}f}" for value in (mean, low, high) if value is not None]
    return f"{shown[0]} [{shown[1]}, {shown[2]}]" if len(shown) > 1 else f"{shown[0]} (1 question)"


def measures(graded: Sequence[Graded]) -> "dict[str, Measure]":
    """Every measure that is defined, with its interval over questions."""
    import numpy as np

    from refinery.metrics.bootstrap import interval_of, ratio

    names = dict.fromkeys(name for one in graded for name in one.counts)
    counts = {name: np.array([one.counts.get(name, (0, 0)) for one in graded], dtype=float) for name in names}
    found = {name: ratio(pairs[:, 0], pairs[:, 1]) for name, pairs in counts.items()}
    if scored := [one.scored for one in graded if one.scored]:
        found["AUC"] = interval_of(lambda drawn: _auc([pair for position in drawn for pair in scored[position]]), len(scored))
    return {name: value for name, value in found.items() if value is not None}


def _auc(scored: Sequence[tuple[float, bool]]) -> float | None:
    from refinery.metrics.classification import auc

    return auc([score for score, _ in scored], [positive for _, positive in scored])
