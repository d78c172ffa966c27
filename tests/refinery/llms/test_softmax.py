import math

import pytest

from refinery.llms.softmax import label_softmax, softmax


def test_probabilities_add_up_to_one_and_keep_their_ratios():
    assert softmax([math.log(0.1), math.log(0.3)]) == pytest.approx([0.25, 0.75])


def test_log_probabilities_far_below_zero_are_compared_all_the_same():
    assert softmax([-2000.0, -2000.0]) == [0.5, 0.5]


def test_labels_keep_their_order():
    assert label_softmax(["relevant", "irrelevant"], [0.0, 0.0]) == {"relevant": 0.5, "irrelevant": 0.5}
