import pytest

from refinery.metrics.retrieval import retrieval_em, retrieval_f1, retrieval_recall


@pytest.mark.parametrize(
    ("retrieved", "supporting", "em", "f1", "recall"),
    [
        (["a", "b"], ["b", "a"], 1, 1, 1),
        (["a", "a", "c", "d"], ["a", "b"], 0, 0.4, 0.5),  # a set: what is found twice counts once
        (["c"], ["a"], 0, 0, 0),
        ([], ["a"], 0, 0, 0),
        (["a"], [], 0, 0, 0),
        ([], [], 1, 1, 0),
    ],
)
def test_passages_are_scored_as_hotpotqa_scores_supporting_facts(retrieved, supporting, em, f1, recall):
    scores = (retrieval_em(retrieved, supporting), retrieval_f1(retrieved, supporting), retrieval_recall(retrieved, supporting))
    assert scores == (em, pytest.approx(f1), recall)
