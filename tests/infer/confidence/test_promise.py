"""A promised share of wrong answers: the bound is exact, and the promise is kept, or refused with what would do."""

import re
from random import Random

import pytest
from scipy.stats import beta

from infer.confidence.promise import promised, upper_bound
from refinery.errors import UnreachedError


@pytest.mark.parametrize(("wrong", "answered"), [(0, 29), (1, 10), (7, 96), (50, 1000), (3, 3)])
def test_the_bound_is_clopper_and_pearsons(wrong, answered):
    exact = 1.0 if wrong == answered else beta.ppf(0.95, wrong + 1, answered - wrong)
    assert upper_bound(wrong, answered, 0.95) == pytest.approx(exact, abs=1e-9)


def answers(random, count):
    """Answers whose confidence says how often they are right, half of them sure."""
    sure = [random.choice([0.3, 0.6, 0.97]) + random.random() / 50 for _ in range(count)]
    return [(confidence, random.random() < confidence) for confidence in sure]


def test_the_promise_is_kept_in_at_least_95_of_100_draws():
    kept = made = 0
    for seed in range(120):
        random = Random(seed)
        try:
            promise = promised(answers(random, 150), answers(random, 150), risk=0.1, confidence=0.95)
        except UnreachedError:
            continue
        fresh = [right for sure, right in answers(random, 1500) if sure >= promise.threshold]
        made += 1
        kept += fresh.count(False) <= 0.1 * len(fresh)
    assert made >= 60
    assert kept >= 0.95 * made


def test_the_lowest_threshold_is_kept_that_no_failed_one_precedes():
    tested = [(0.9, True)] * 60 + [(0.5, True)] * 30 + [(0.4, False)] * 30
    promise = promised(tested, tested, risk=0.1, confidence=0.95)
    assert (promise.threshold, promise.questions, promise.answered, promise.wrong) == (0.5, 120, 90, 0)


def test_a_promise_that_needs_more_questions_is_refused_with_how_many_would_do():
    few = [(0.9, True)] * 19 + [(0.8, False)]
    with pytest.raises(UnreachedError, match=r"no threshold keeps the share of wrong answers at 0\.1 .* on 20 questions") as refused:
        promised(few, few, risk=0.1, confidence=0.95)
    (needed,) = re.findall(r"About (\d+) questions", str(refused.value))
    many = few * (int(needed) // 20 + 1)
    assert promised(many, many, risk=0.1, confidence=0.95).bound <= 0.1


def test_a_promise_that_no_number_of_questions_makes_says_what_to_do():
    wrong = [(0.9, False)] * 30
    with pytest.raises(UnreachedError, match=r"Ask for a larger --risk, or train further\."):
        promised(wrong, wrong, risk=0.1, confidence=0.95)
