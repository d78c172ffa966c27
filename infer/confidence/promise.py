"""A threshold of confidence with a promise: of the answers above it, at most a given share is wrong, except with a small probability.

The share is bounded by Clopper and Pearson's exact binomial interval, on answers that decided neither the confidences nor the order of
thresholds that are tried. They are tried from high to low, and the first that fails ends the search, so that trying several needs no
correction (fixed-sequence testing; Angelopoulos et al. 2021, "Learn then Test", Sec. 3). The promise holds for questions drawn like these.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from refinery.contract.records import Record
from refinery.errors import UnreachedError

if TYPE_CHECKING:  # it is imported where a promise is made, because every recipe imports this module
    import numpy as np

_COVERAGES = [share / 40 for share in range(1, 41)]  # of the answers that decide the order
_MOST_QUESTIONS = 1_000_000
_HALVINGS = 40


class Promise(Record):
    """The threshold that keeps the share of wrong answers at `risk` with this `confidence`, and what it was tested on.

    Of `questions`, `answered` were answered, of these `wrong` wrongly, so that the share is at most `bound`.
    """

    risk: float
    confidence: float
    threshold: float
    questions: int
    answered: int
    wrong: int
    bound: float


def promised(known: Sequence[tuple[float, bool]], tested: Sequence[tuple[float, bool]], *, risk: float, confidence: float) -> Promise:
    """The lowest threshold that keeps the promise on `tested`. Both are (confidence, whether right) of answers; `known` orders thresholds.

    Raises UnreachedError where no threshold keeps it, with the number of questions that would do.
    """
    best: Promise | None = None
    first: Promise | None = None
    for threshold in _thresholds(known, len(tested), confidence):
        tried = _tested(threshold, tested, risk, confidence)
        first = first or tried
        if tried.bound > risk:
            break
        best = tried
    if best is None:
        assert first is not None, "there is at least one threshold"
        raise UnreachedError(_refusal(first))
    return best


@cache
def upper_bound(wrong: int, answered: int, confidence: float) -> float:
    """Clopper and Pearson's one-sided upper bound of a share: the largest one of which so few wrong answers are not too improbable."""
    if wrong >= answered:
        return 1.0
    low, high = wrong / answered, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(wrong, answered, middle) > 1 - confidence else (low, middle)
    return high


def _at_most(wrong: int, answered: int, share: float) -> float:
    """The probability of at most so many wrong answers."""
    import numpy as np

    counts = np.arange(wrong + 1)
    return float(np.exp(_log_ways(answered)[: wrong + 1] + counts * math.log(share) + (answered - counts) * math.log1p(-share)).sum())


@cache
def _log_ways(answered: int) -> "np.ndarray":
    """The logarithm of the number of ways to choose each number of answers."""
    import numpy as np

    factorials = np.cumsum(np.log(np.maximum(np.arange(answered + 1), 1)))
    return factorials[-1] - factorials - factorials[::-1]


def _thresholds(known: Sequence[tuple[float, bool]], num_tested: int, confidence: float) -> list[float]:
    """From high to low, beginning where the known answers let expect the smallest bound on as many as are tested."""
    ordered = sorted(known, reverse=True)
    expected: list[tuple[float, float]] = []
    for coverage in _COVERAGES:
        above = ordered[: max(1, round(coverage * len(ordered)))]
        answered = max(1, round(coverage * num_tested))
        wrong = math.ceil(answered * sum(not right for _, right in above) / len(above))
        expected.append((upper_bound(wrong, answered, confidence), above[-1][0]))
    start = min(range(len(expected)), key=lambda number: expected[number][0])
    return list(dict.fromkeys(threshold for _, threshold in expected[start:]))


def _tested(threshold: float, tested: Sequence[tuple[float, bool]], risk: float, confidence: float) -> Promise:
    above = [right for sure, right in tested if sure >= threshold]
    wrong = above.count(False)
    return Promise(
        risk=risk,
        confidence=confidence,
        threshold=threshold,
        questions=len(tested),
        answered=len(above),
        wrong=wrong,
        bound=upper_bound(wrong, len(above), confidence) if above else 1.0,
    )


def _refusal(tried: Promise) -> str:
    found = (
        f"no threshold keeps the share of wrong answers at {tried.risk:g} with confidence {tried.confidence:g} on "
        f"{tried.questions} questions: of the {tried.answered} surest answers, {tried.wrong} are wrong, so at most {tried.bound:.3f}."
    )
    needed = _needed(tried)
    if needed is None:
        return f"{found} Ask for a larger --risk, or train further."
    return f"{found} About {needed:,} questions of this kind would do, or a larger --risk."


def _needed(tried: Promise) -> int | None:
    """How many questions would do if the shares of answers and of wrong ones among them stayed; None if none."""
    if not tried.answered or tried.wrong / tried.answered >= tried.risk:
        return None
    factor = 1.0
    while tried.questions * factor < _MOST_QUESTIONS:
        factor *= 1.2
        if upper_bound(math.ceil(tried.wrong * factor), round(tried.answered * factor), tried.confidence) <= tried.risk:
            return round(tried.questions * factor)
    return None
