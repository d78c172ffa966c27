"""Measure how much a method iterates and reads, as MIGRES Tables 4 and 5 do, from the traces alone."""

import re
from collections.abc import Callable

from refinery.contract.segments import encode_text
from refinery.contract.tokenizer import Tokenizer
from refinery.contract.trace import Prediction, ScoredPassage
from refinery.unspaced import UNSPACED, split_words

_TOKEN = re.compile(rf"[{UNSPACED}]+|\w+|[^\w\s]")

_MEANS = ("iterations", "passages_per_iteration", "passages_per_call", "passages_in_answer", "knowledge_tokens")


class Efficiency:
    """The amount of text shown to the model, as means over the answered questions (MIGRES Tables 4 and 5).

    `iterations` ("# Iter" in Table 4) is the number of depths in a trace. `passages_per_iteration` ("# Passages") counts the passages that
    passed a filter if a step of the trace is named `filter`, and otherwise those retrieved; `passages_per_call` is the same number per
    call. "# API" is `calls` in the cost. `knowledge_tokens` ("# Tokens" in Table 5) counts the title and text of the same passages, and for
    SUMM and SNIPPET also their condensed texts, because a passage is read once to condense it and its condensed text once more. Decoders
    that repeat earlier passages (ReAct, Self-Ask) show the model more than these numbers say, as in the paper. Without a `tokenizer`, each
    word and each punctuation mark counts as a token. `passages_in_answer` counts only what the final answer was written from.
    """

    def __init__(self, *, tokenizer: Tokenizer | None = None) -> None:
        self._count_tokens = _counter(tokenizer)
        self._answered = 0
        self._sums = dict.fromkeys(_MEANS, 0.0)

    def add(self, prediction: Prediction) -> None:
        """Count one answer."""
        iterations = 1 + max((step.depth for step in prediction.trace), default=0)
        passages = len(_passages_shown(prediction))
        self._answered += 1
        self._sums["iterations"] += iterations
        self._sums["passages_per_iteration"] += passages / iterations
        self._sums["passages_per_call"] += passages / max(prediction.cost.calls, 1)
        self._sums["passages_in_answer"] += len(prediction.read or [])
        self._sums["knowledge_tokens"] += sum(map(self._count_tokens, _texts(prediction)))

    def means(self) -> dict[str, float]:
        """The means so far."""
        return {name: round(value / max(self._answered, 1), 2) for name, value in self._sums.items()}


def _counter(tokenizer: Tokenizer | None) -> Callable[[str], int]:
    if tokenizer is None:
        return lambda text: sum(len(_TOKEN.findall(word)) for word in split_words(text))
    return lambda text: len(encode_text(text, tokenizer))


def _passages_shown(prediction: Prediction) -> list[ScoredPassage]:
    """The passages that some call was shown, in order and with repetitions: those that passed a filter, if the method has one."""
    filters = any(step.name == "filter" for step in prediction.trace)
    return _passages(prediction, "filter" if filters else "retrieve")


def _texts(prediction: Prediction) -> list[str]:
    read = [*_passages_shown(prediction), *_passages(prediction, "condensed")]
    return [text for passage in read for text in (passage.title, passage.text)]


def _passages(prediction: Prediction, name: str) -> list[ScoredPassage]:
    return [passage for step in prediction.trace if step.name == name for passage in step.passages or []]
