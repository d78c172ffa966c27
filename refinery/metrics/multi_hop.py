"""Answer F1 of the multi-hop datasets, where their scripts differ from SQuAD's. Their exact match is SQuAD's."""

from collections.abc import Sequence

from refinery.metrics.squad import normalized_f1
from refinery.text import normalize_answer

_CLOSED = ("yes", "no", "noanswer")


def hotpotqa_f1(prediction: str, answers: Sequence[str]) -> float:
    """F1 of `hotpot_evaluate_v1.py`: yes, no and noanswer are right or wrong, and share no token with a longer answer."""
    predicted = normalize_answer(prediction)
    return max((_open_f1(predicted, normalize_answer(answer)) for answer in answers), default=0.0)


def _open_f1(predicted: str, gold: str) -> float:
    if predicted != gold and (predicted in _CLOSED or gold in _CLOSED):
        return 0.0
    return normalized_f1(predicted, gold)


def musique_f1(prediction: str, answers: Sequence[str]) -> float:
    """F1 of `metrics/answer.py`: 1.0 when both sides normalize to an empty text."""
    predicted = normalize_answer(prediction)
    golds = [normalize_answer(answer) for answer in answers]
    return max((1.0 if predicted == gold else normalized_f1(predicted, gold) for gold in golds), default=0.0)
