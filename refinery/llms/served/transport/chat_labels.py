"""Read a label from a chat: from the log-probabilities of the reply's first token if the endpoint gives them, else from its words."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from refinery.llms.served.endpoint import Reply
from refinery.llms.served.protocols.base import FirstLogprobs

LABEL_TOKENS = 16  # most tokens of a reply: a short sentence that names the label
# If the first token's alternatives give the labels less than this probability in all, the model begins with other words ("The paragraph
# is ..."), and the words are read instead.
_LEAST_MASS = 0.5


@dataclass(slots=True)
class LabelReply(Reply):
    """A reply with the log-probabilities of its first token's alternatives, or None if the endpoint gave none."""

    first_logprobs: FirstLogprobs | None = None

    @classmethod
    def of(cls, reply: Reply, first_logprobs: FirstLogprobs | None) -> "LabelReply":
        """The reply with its first token's alternatives."""
        return cls(**{name: getattr(reply, name) for name in Reply.__slots__}, first_logprobs=first_logprobs)


def label_probs_of(reply: LabelReply, labels: Sequence[str]) -> dict[str, float]:
    """The probability of each label, normalized over the labels, or all zero if the reply names none."""
    return _by_logprobs(reply.first_logprobs, labels) or _by_words(reply.text, labels)


def value_probability(field: str, tokens: Sequence[tuple[str, float]]) -> float | None:
    """The probability of the value of a field in a JSON reply: that of the tokens that overlap with it. None without tokens.

    It is 0 if the field is not found, so that a reply that was not understood counts as unsure.
    """
    if not tokens:
        return None
    text = "".join(token for token, _ in tokens)
    found = list(re.finditer(rf'"{re.escape(field)}"\s*:\s*(?P<value>"[^"]*"|\[[^\]]*\]|[\w.-]+)', text))
    if not found:
        return 0.0
    start, end = found[-1].span("value")
    ends = list(accumulate(len(token) for token, _ in tokens))
    logprobs = (logprob for (token, logprob), last in zip(tokens, ends, strict=True) if last > start and last - len(token) < end)
    return math.exp(min(sum(logprobs), 0.0))


def mean_probs(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean over the samples that named a label, or all zero if none did."""
    named = [probs for probs in samples if any(probs.values())] or samples
    return {label: sum(probs[label] for probs in named) / len(named) for label in named[0]}


def _by_logprobs(first: Sequence[tuple[str, float]] | None, labels: Sequence[str]) -> dict[str, float] | None:
    weights = dict.fromkeys(labels, 0.0)
    for token, logprob in first or ():
        text = token.strip(" \n*\"'.").lower()
        begun = [label for label in labels if text and label.strip().lower().startswith(text)]
        if len(begun) == 1:
            weights[begun[0]] += math.exp(min(logprob, 0.0))
    total = sum(weights.values())
    return {label: weight / total for label, weight in weights.items()} if total >= _LEAST_MASS else None


def _by_words(text: str, labels: Sequence[str]) -> dict[str, float]:
    """Probability 1 for the only label that the reply names. Of two labels, `not relevant` names the other one."""
    words = {label.strip().lower(): label for label in labels}
    longest_first = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    said = re.finditer(rf"(?P<negated>\bnot |n't )?\b(?P<label>{longest_first})(?:n\b|\b)", text.lower())
    named = {_meant(words[found["label"]], bool(found["negated"]), labels) for found in said}
    return {label: float(named == {label}) for label in labels}


def _meant(label: str, negated: bool, labels: Sequence[str]) -> str:
    return next(other for other in labels if other != label) if negated and len(labels) == 2 else label
