"""How well relevance labels and the retriever's rank agree, as a sanity check: rank 1 should be relevant more often than the rest."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from refinery.contract.records import RelevanceLabel


class RankAgreement:
    """Counts agreement from one question's labels at a time, with the passages of each query in rank order."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def add(self, dataset: str, labels: Sequence[RelevanceLabel]) -> None:
        """Add the labels of one question, including those of its sub-questions."""
        counts = self._counts.setdefault(dataset, Counter())
        for _, rows in groupby(labels, key=lambda row: row.question):
            ranked = list(rows)
            relevant = [row.label == "relevant" for row in ranked]
            counts.update(queries=1, relevant_at_rank_1=relevant[0], relevant_within_top_k=any(relevant))
            counts.update(passages=len(relevant), relevant_passages=sum(relevant))
            counts.update(judged_in_both_orders=sum(row.order_agrees is not None for row in ranked))
            counts.update(judged_differently=sum(row.order_agrees is False for row in ranked))

    def report(self) -> dict[str, dict[str, int]]:
        """Counts by dataset, which can be added across shards.

        They are the queries, those with a relevant passage at rank 1, and those with one anywhere; the passages and the relevant ones,
        whose ratio is what a random ranking would have at rank 1; the passages judged in both orders, and those judged differently, which
        shows order bias.
        """
        return {dataset: dict(counts) for dataset, counts in self._counts.items()}
