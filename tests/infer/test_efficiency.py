"""MIGRES' efficiency figures, from traces."""

import pytest

from infer.efficiency import efficiency
from infer.trace import Cost, Prediction, ScoredPassage, TraceStep


def prediction(*steps: tuple[str, int, int]) -> Prediction:
    """A prediction whose trace has steps of a name, a depth and a number of passages."""
    found = [ScoredPassage(id=str(number), text="x", retrieval_score=1.0) for number in range(50)]
    trace = [TraceStep(name=name, depth=depth, question="q", passages=found[:count] or None) for name, depth, count in steps]
    return Prediction(
        question_id="q", question="q", answer="a", trace=trace, cost=Cost(calls=1, retrievals=1, prefill_tokens=1, decode_tokens=1)
    )


def test_one_search_is_one_iteration_of_all_its_passages():
    assert efficiency([prediction(("retrieve", 0, 5), ("answer", 0, 0))]) == {"iterations": 1, "passages_per_iteration": 5}


def test_passages_are_counted_after_the_filter():
    found = prediction(("retrieve", 0, 50), ("filter", 0, 2), ("retrieve", 1, 50), ("filter", 1, 1), ("main", 1, 0))
    assert efficiency([found]) == {"iterations": 2, "passages_per_iteration": 1.5}


def test_questions_count_alike_and_unanswered_ones_not():
    one, three = prediction(("retrieve", 0, 5)), prediction(("retrieve", 0, 5), ("retrieve", 1, 5), ("retrieve", 2, 5))
    assert efficiency([one, None, three]) == {"iterations": 2, "passages_per_iteration": pytest.approx(5)}
    assert efficiency([None]) == {"iterations": 0, "passages_per_iteration": 0}
