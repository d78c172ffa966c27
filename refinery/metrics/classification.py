"""Accuracy and F1 of label predictions."""

from collections.abc import Sequence


def accuracy(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """Share of equal labels."""
    return sum(p == g for p, g in zip(predicted, gold, strict=True)) / len(gold)


def label_f1(predicted: Sequence[str], gold: Sequence[str], *, positive: str) -> float:
    """F1 of one label; 0.0 where it is neither predicted nor gold."""
    hits = sum(p == g == positive for p, g in zip(predicted, gold, strict=True))
    total = sum(p == positive for p in predicted) + sum(g == positive for g in gold)
    return 2 * hits / total if total else 0.0
