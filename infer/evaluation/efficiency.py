"""Measure how much a method iterates and reads, as MIGRES Tables 4 and 5 do, from the traces alone."""

import re
from collections.abc import Callable, Sequence
from statistics import fmean

from refinery.contract.segments import encode_text
from refinery.contract.tokenizer import Tokenizer
from refinery.contract.trace import Prediction, ScoredPassage

_WORD = re.compile(r"\w+|[^\w\s]")


def efficiency(predictions: Sequence[Prediction | None], *, tokenizer: Tokenizer | None = None) -> dict[str, float]:
    """What the model was shown, as means over the answered questions (MIGRES Tables 4 and 5).

    `iterations` ("# Iter" in Table 4) is the number of depths in a trace. `passages_per_iteration` ("# Passages") counts the passages that
    passed a filter if a step of the trace is named `filter`, and otherwise those retrieved; `passages_per_call` is the same number per
    call. "# API" is `calls` in the cost. `knowledge_tokens` ("# Tokens" in Table 5) counts the title and text of the same passages, and for
    SUMM and SNIPPET also their condensed texts, because a passage is read once to condense it and its condensed text once more. Decoders
    that repeat earlier passages (ReAct, Self-Ask) show the model more than these numbers say, as in the paper. Without a `tokenizer`, each
    word and each punctuation mark counts as a token.
    """
    answered = [prediction for prediction in predictions if prediction]
    if not answered:
        return {"iterations": 0.0, "passages_per_iteration": 0.0, "passages_per_call": 0.0, "knowledge_tokens": 0.0}
    iterations = [1 + max((step.depth for step in prediction.trace), default=0) for prediction in answered]
    passages = [len(passages_read(prediction)) for prediction in answered]
    calls = [max(prediction.cost.calls, 1) for prediction in answered]
    count_tokens = _counter(tokenizer)
    tokens = [sum(map(count_tokens, _texts(prediction))) for prediction in answered]
    return {
        "iterations": round(fmean(iterations), 2),
        "passages_per_iteration": round(fmean(read / count for read, count in zip(passages, iterations, strict=True)), 2),
        "passages_per_call": round(fmean(read / count for read, count in zip(passages, calls, strict=True)), 2),
        "knowledge_tokens": round(fmean(tokens), 2),
    }


def _counter(tokenizer: Tokenizer | None) -> Callable[[str], int]:
    if tokenizer is None:
        return lambda text: len(_WORD.findall(text))
    return lambda text: len(encode_text(text, tokenizer))


def passages_read(prediction: Prediction) -> list[ScoredPassage]:
    """The passages that the model was shown, in order and with repetitions: those that passed a filter, if the method has one."""
    filters = any(step.name == "filter" for step in prediction.trace)
    return _passages(prediction, "filter" if filters else "retrieve")


def _texts(prediction: Prediction) -> list[str]:
    read = [*passages_read(prediction), *_passages(prediction, "condensed")]
    return [text for passage in read for text in (passage.title, passage.text)]


def _passages(prediction: Prediction, name: str) -> list[ScoredPassage]:
    return [passage for step in prediction.trace if step.name == name for passage in step.passages or []]
