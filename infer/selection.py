"""Which of a tree's finished paths to answer with (RQ-RAG Sec. 2.3), from the log-probabilities kept while decoding.

No model is needed, so a stored run can be selected again in milliseconds. `paper` follows Sec. 2.3 to the letter, where confidence is
a sum of log-probabilities and the ensemble adds these negative numbers up, so that an answer loses by being found often. `fixed`
takes the confidence as the geometric mean of the answer's token probabilities, which long answers do not lose by, and the ensemble as
the probability of each normalised answer: the sum, over the paths that end in it, of the probability of the whole path. Votes of paths
that the model would hardly take itself (a tree takes all of them) then weigh little.
"""

import math
from collections.abc import Sequence
from typing import Literal

from refinery.metrics.squad import normalize_answer
from refinery.records import Trajectory

Fidelity = Literal["paper", "fixed"]
STRATEGIES = ("ppl", "confidence", "ensemble")


def select(paths: Sequence[Trajectory], strategy: str, *, fidelity: Fidelity) -> str:
    """The answer that `strategy` selects; the first path wins ties."""
    if strategy == "ppl":
        return _answer(min(paths, key=perplexity))
    if strategy == "confidence":
        return _answer(max(paths, key=lambda path: confidence(path, fidelity=fidelity)))
    votes: dict[str, float] = {}
    for path in paths:
        key = _vote_key(path, fidelity)
        votes[key] = votes.get(key, 0.0) + _vote(path, fidelity)
    winner = max(votes, key=votes.__getitem__)
    return next(_answer(path) for path in paths if _vote_key(path, fidelity) == winner)


def perplexity(path: Trajectory) -> float:
    """exp of the mean negative log-probability of everything the model wrote: control tokens, queries and answer, not evidence."""
    logprobs = _written(path)
    return math.exp(-sum(logprobs) / len(logprobs))


def confidence(path: Trajectory, *, fidelity: Fidelity) -> float:
    """How sure the model was of the final answer's tokens (the control token that opens it is not part of it)."""
    logprobs = (path.steps[-1].logprobs or [])[1:]
    return sum(logprobs) if fidelity == "paper" else math.exp(sum(logprobs) / len(logprobs))


def _written(path: Trajectory) -> list[float]:
    return [logprob for step in path.steps for logprob in step.logprobs or []]


def _vote(path: Trajectory, fidelity: Fidelity) -> float:
    return confidence(path, fidelity=fidelity) if fidelity == "paper" else math.exp(sum(_written(path)))


def _vote_key(path: Trajectory, fidelity: Fidelity) -> str:
    return _answer(path) if fidelity == "paper" else normalize_answer(_answer(path))


def _answer(path: Trajectory) -> str:
    return path.answer or ""
