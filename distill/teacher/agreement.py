"""How often two labelings of the same rows agree: raw, and for labels beyond chance by Cohen's kappa (Cohen, 1960)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# The labels of two texts, which have no labels: `same` is the first, and the other is the same or different.
SAME, DIFFERENT = "same", "different"


class Agreement:
    """Counts the pairs of labels that two teachers, or two samples of one, gave the same thing."""

    def __init__(self) -> None:
        self._pairs: dict[str, Counter[tuple[str, str]]] = {}

    def add(self, between: str, pairs: Iterable[tuple[str, str]]) -> None:
        """Add pairs of labels; `between` says whose they are."""
        self._pairs.setdefault(between, Counter()).update(pairs)

    def report(self) -> dict[str, Any]:
        """For `metrics.json`: for each kind of pair the counts, by the first label and then the second, and what they say."""
        return {between: with_agreement(_nested(pairs)) for between, pairs in self._pairs.items()}


@dataclass
class Tally:
    """What a run with several teachers or samples counts, beside its requests."""

    agreement: Agreement = field(default_factory=Agreement)
    counts: Counter[str] = field(default_factory=Counter)

    def report(self) -> dict[str, Any]:
        """For `metrics.json`; empty for a run with one teacher and one sample."""
        agreement = self.agreement.report()
        return {**({"agreement": agreement} if agreement else {}), **self.counts}


def with_agreement(counts: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Counts of pairs, by the first label and then the second, with the number of pairs, their raw agreement and Cohen's kappa."""
    pairs = Counter({(one, other): count for one, row in counts.items() for other, count in row.items()})
    raw = sum(count for (one, other), count in pairs.items() if one == other) / max(1, pairs.total())
    return {"pairs": pairs.total(), "raw": raw, "kappa": None if SAME in counts else cohens_kappa(pairs), "counts": counts}


def cohens_kappa(pairs: Mapping[tuple[str, str], int]) -> float | None:
    """Agreement beyond what the two labelers' own frequencies of labels give by chance; None if chance alone gives all of it."""
    total = sum(pairs.values())
    first, second = Counter[str](), Counter[str]()
    for (one, other), count in pairs.items():
        first[one], second[other] = first[one] + count, second[other] + count
    by_chance = sum(first[label] * second[label] for label in first) / max(1, total) ** 2
    observed = sum(count for (one, other), count in pairs.items() if one == other) / max(1, total)
    return None if by_chance == 1 or not total else (observed - by_chance) / (1 - by_chance)


def _nested(pairs: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for (one, other), count in sorted(pairs.items()):
        counts.setdefault(one, {})[other] = count
    return counts
