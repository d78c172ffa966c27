"""Which of a tree's finished paths to answer with (RQ-RAG Sec. 2.3), from the probabilities kept while decoding.

No model is needed, so a stored run can be selected again in milliseconds. Three definitions of the paper's values:

- `paper` follows Sec. 2.3 to the letter. ppl is over what the model wrote: control tokens, queries, answer. confidence is the sum of
  the answer's log-probabilities, and the ensemble adds these negative numbers up, so that an answer loses by being found often.
- `official` is the authors' sample_from_tree.py. ppl is over the whole text, prompt and evidence too; confidence is the mean of the
  highest probabilities (of the greedy answer's tokens these are its own) without white space in front and `[EOS]` at the end, of the
  first token alone for multiple choice; the ensemble adds these up by the answer as it is written. An answer without `[EOS]` has no
  confidence, and was decoded as `NO_ANSWER`. Only a run that was decoded so can be selected so: other runs do not score what the model
  only reads.
- `fixed` takes the confidence as the geometric mean of the answer's token probabilities, which long answers do not lose by, and the
  ensemble as the probability of each normalised answer: the sum, over the paths that end in it, of the probability of the whole path.
  Votes of paths that the model would hardly take itself (a tree takes all of them) then weigh little.

In all of them the first path wins ties, and what is not a number loses. An empty answer competes as its `[EOS]` scores under `paper`;
it has no confidence and no vote under `fixed`, nor under `official`, where the authors' code takes the mean of nothing. A query that
was cut short counts with the tokens there are.

A fourth strategy, `learned`, is ours: Sec. 4.3 leaves the gap to the tree's upper bound open. A trained selector gave each path a
probability of ending in a right answer; whatever the fidelity, that times the probability of the path is its vote for its normalised
answer. Without the path's own probability a small selector is misled by the many paths that a tree forces (recipes/rq_rag/README.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from refinery.contract.records import Reading, Trajectory
from refinery.text import normalize_answer

Fidelity = Literal["paper", "official", "fixed"]
STRATEGIES = ("ppl", "confidence", "ensemble")
LEARNED = "learned"  # where a selector has judged the tree
NO_ANSWER = "dummy results, unable to detect valid answer"  # sample_from_tree.py's words


@dataclass(frozen=True, slots=True)
class Definition:
    """How the values are defined: whose definition, whether the answer is a letter (`official` reads that alone), and for `learned` the
    power to which a path's own probability counts."""

    fidelity: Fidelity
    multiple_choice: bool = False
    generator_weight: float = 1.0


def selectable(decoded_as: Fidelity) -> tuple[Fidelity, ...]:
    """The fidelities that a run decoded with one of them can be selected by."""
    return ("paper", "official", "fixed") if decoded_as == "official" else ("paper", "fixed")


def strategies_of(paths: Sequence[Trajectory]) -> tuple[str, ...]:
    """The strategies that a tree can be selected by: `learned` only where a selector has judged it."""
    return (*STRATEGIES, LEARNED) if all(path.right_probability is not None for path in paths) else STRATEGIES


def select_all(paths: Sequence[Trajectory], by: Definition) -> dict[str, str]:
    """The answer of every strategy that the tree can be selected by."""
    return {strategy: select(paths, strategy, by) for strategy in strategies_of(paths)}


def select(paths: Sequence[Trajectory], strategy: str, by: Definition) -> str:
    """The answer that `strategy` selects; the first path wins ties."""
    return _answer(paths[select_path(paths, strategy, by)])


def select_path(paths: Sequence[Trajectory], strategy: str, by: Definition) -> int:
    """The number of the path that `strategy` selects, from 0.

    The ensemble elects an answer, as the first path words it; of the paths with these words the one with the strongest vote stands for it.
    """
    values = path_values(paths, strategy, by)
    if strategy == "ppl":
        return values.index(min(values))
    if strategy in ("ensemble", LEARNED):
        keys = [vote_key(path, strategy, by) for path in paths]
        votes: dict[str, float] = {}
        for key, vote in zip(keys, values, strict=True):
            votes[key] = votes.get(key, 0.0) + vote
        elected = _answer(paths[keys.index(max(votes, key=votes.__getitem__))])
        return max((number for number, path in enumerate(paths) if _answer(path) == elected), key=values.__getitem__)
    return values.index(max(values))


def path_values(paths: Sequence[Trajectory], strategy: str, by: Definition) -> list[float]:
    """What `strategy` compares: each path's perplexity (the lowest wins), confidence (the highest), or its vote for its `vote_key`."""
    if strategy == LEARNED:
        return [_number(_learned_vote(path, by.generator_weight), 0.0) for path in paths]
    if strategy == "ppl":
        return [_number(perplexity(path, fidelity=by.fidelity), math.inf) for path in paths]
    if strategy == "ensemble" and by.fidelity == "fixed":
        return [_number(_path_probability(path), 0.0) for path in paths]
    lowest = -math.inf if by.fidelity == "paper" else 0.0
    return [_number(confidence(path, by), lowest) for path in paths]


def vote_key(path: Trajectory, strategy: str, by: Definition) -> str:
    """The answer as the ensemble, or `learned`, counts it."""
    return normalize_answer(_answer(path)) if strategy == LEARNED or by.fidelity == "fixed" else _answer(path)


def perplexity(path: Trajectory, *, fidelity: Fidelity = "paper") -> float:
    """exp of the mean negative log-probability of what the model wrote, under `official` also of what it read."""
    logprobs = _written(path)
    if fidelity != "official":
        return math.exp(-sum(logprobs) / len(logprobs))
    reading = _reading(path)
    return math.exp(-(sum(logprobs) + reading.logprob) / (len(logprobs) + reading.num_tokens))


def confidence(path: Trajectory, by: Definition) -> float:
    """How sure the model was of the final answer's tokens (the control token that opens it is not part of it)."""
    logprobs = (path.steps[-1].logprobs or [])[1:]
    if by.fidelity == "paper":
        return sum(logprobs)
    if by.fidelity == "fixed":
        return math.exp(sum(logprobs) / len(logprobs)) if path.answer else 0.0
    reading = _reading(path)
    content = logprobs[reading.blank_tokens : -1] if reading.closed[-1] else []
    probabilities = [math.exp(logprob) for logprob in (content[:1] if by.multiple_choice else content)]
    return sum(probabilities) / len(probabilities) if probabilities else 0.0


def _written(path: Trajectory) -> list[float]:
    return [logprob for step in path.steps for logprob in step.logprobs or []]


def _path_probability(path: Trajectory) -> float:
    """Of all that the model wrote; 0 for a path without an answer, which has no vote."""
    return math.exp(sum(_written(path))) if path.answer else 0.0


def _learned_vote(path: Trajectory, generator_weight: float) -> float:
    assert path.right_probability is not None, "no selector has judged the tree"
    return path.right_probability * _path_probability(path) ** generator_weight if path.answer else 0.0


def _reading(path: Trajectory) -> Reading:
    assert path.reading is not None, "the run was not decoded with `fidelity: official`"
    return path.reading


def _answer(path: Trajectory) -> str:
    return path.answer or ""


def _number(value: float, worst: float) -> float:
    return worst if math.isnan(value) else value
