"""Exact match and token F1 as SQuAD's `evaluate-v1.1.py` defines them; the best over all gold answers counts."""

from collections import Counter
from collections.abc import Sequence

from refinery.text import normalize_answer


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1.0 when the normalized prediction equals a normalized gold answer, else 0.0."""
    predicted = normalize_answer(prediction)
    return float(any(predicted == normalize_answer(answer) for answer in answers))


def token_f1(prediction: str, answers: Sequence[str]) -> float:
    """F1 over normalized tokens, or 0.0 when either side has none."""
    predicted = normalize_answer(prediction)
    return max((normalized_f1(predicted, normalize_answer(answer)) for answer in answers), default=0.0)


def normalized_f1(predicted: str, gold: str) -> float:
    """F1 over the tokens of two normalized texts, or 0.0 when either has none."""
    if predicted == gold:
        return float(predicted != "")
    predicted_tokens, gold_tokens = predicted.split(), gold.split()
    predicted_words, gold_words = set(predicted_tokens), set(gold_tokens)
    shared = len(predicted_words & gold_words)
    if not shared:
        return 0.0
    if len(predicted_words) < len(predicted_tokens) and len(gold_words) < len(gold_tokens):
        shared = (Counter(predicted_tokens) & Counter(gold_tokens)).total()  # a word counts more than once only if both texts repeat it
    precision, recall = shared / len(predicted_tokens), shared / len(gold_tokens)
    return 2 * precision * recall / (precision + recall)
