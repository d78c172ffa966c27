"""Log-probabilities that are read of a few candidates, as probabilities over them. No torch in it: endpoints need it too."""

import math
from collections.abc import Sequence


def softmax(logprobs: Sequence[float]) -> list[float]:
    """The probabilities, which add up to one."""
    weights = [math.exp(logprob - max(logprobs)) for logprob in logprobs]
    total = sum(weights)
    return [weight / total for weight in weights]


def label_softmax(labels: Sequence[str], logprobs: Sequence[float]) -> dict[str, float]:
    """The probability of each label, normalized over the labels."""
    return dict(zip(labels, softmax(logprobs), strict=True))
