"""How many closed-book answers of a model are right (RA-ISF App. A.1)."""

from collections.abc import Sequence

from refinery.metrics.squad import exact_match, token_f1

METRICS = {"em.squad": exact_match, "f1.squad": token_f1}


def right_share(replies: Sequence[str], answers: Sequence[str], metric: str) -> float:
    """The mean score of the replies, by a metric in METRICS. Only the first line counts: a base model often goes on with a question."""
    grade = METRICS[metric]
    return sum(grade(reply.strip().partition("\n")[0], answers) for reply in replies) / len(replies)
