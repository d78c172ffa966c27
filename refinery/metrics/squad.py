"""Exact match and token F1 as SQuAD's `evaluate-v1.1.py` defines them; the best over all gold answers counts."""

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower case, ASCII punctuation deleted, articles dropped, white space collapsed."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1.0 when the normalised prediction equals a normalised gold answer, else 0.0."""
    return float(any(normalize_answer(prediction) == normalize_answer(answer) for answer in answers))


def token_f1(prediction: str, answers: Sequence[str]) -> float:
    """F1 over normalised tokens; 0.0 when either side has none."""
    return max((_f1(normalize_answer(prediction).split(), normalize_answer(answer).split()) for answer in answers), default=0.0)


def _f1(predicted: list[str], gold: list[str]) -> float:
    shared = sum((Counter(predicted) & Counter(gold)).values())
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(gold)
    return 2 * precision * recall / (precision + recall)
