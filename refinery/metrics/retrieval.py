"""Retrieved passages against the supporting ones, as RQ-RAG's `retrieval_lm/metrics.py` and `sample_from_tree.py` count them.

They are HotpotQA's supporting-fact scores over passages instead of sentences. An empty result is right if no passage is needed.
"""

from collections.abc import Collection


def retrieval_em(retrieved: Collection[str], supporting: Collection[str]) -> float:
    """1.0 when exactly the supporting passages were retrieved."""
    return float(set(retrieved) == set(supporting))


def retrieval_f1(retrieved: Collection[str], supporting: Collection[str]) -> float:
    """F1 of the set of retrieved passages."""
    found, needed = set(retrieved), set(supporting)
    return 2 * len(found & needed) / (len(found) + len(needed)) if found or needed else 1.0


def retrieval_recall(retrieved: Collection[str], supporting: Collection[str]) -> float:
    """The fraction of the supporting passages that were retrieved, or 0.0 if there are none."""
    needed = set(supporting)
    return len(needed.intersection(retrieved)) / len(needed) if needed else 0.0
