"""Exact match and answer presence of the open-domain datasets, where their scripts differ from SQuAD's."""

import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from refinery.metrics.squad import exact_match
from refinery.text import ARTICLES, PUNCTUATION, normalize_answer

_CURLY_QUOTES = str.maketrans("\u2018\u2019\u00b4", "   ")
# Patterns of `regex`, where, unlike in `re`, a combining accent belongs to the word before it.
_DPR_ARTICLES = ARTICLES.pattern
_DPR_WORD = r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]"


def triviaqa_em(prediction: str, answers: Sequence[str]) -> float:
    """Exact match of `triviaqa_evaluation.py`: punctuation, curly quotes and underscores become spaces."""
    predicted = _triviaqa_normalized(prediction)
    return float(any(predicted == _triviaqa_normalized(answer) for answer in answers))


@lru_cache(maxsize=1 << 12)
def _triviaqa_normalized(text: str) -> str:
    return " ".join(ARTICLES.sub(" ", PUNCTUATION.sub(" ", text.lower().translate(_CURLY_QUOTES))).split())


@cache
def _compiled(pattern: str) -> Any:
    import regex

    return regex.compile(pattern)


def dpr_em(prediction: str, answers: Sequence[str]) -> float:
    """Exact match of `dpr/data/qa_validation.py`: SQuAD's, but no article ends before a combining accent."""
    predicted = _dpr_normalized(prediction)
    return float(any(predicted == _dpr_normalized(answer) for answer in answers))


@lru_cache(maxsize=1 << 12)
def _dpr_normalized(text: str) -> str:
    return " ".join(_compiled(_DPR_ARTICLES).sub(" ", PUNCTUATION.sub("", text.lower())).split())


def dspy_em(prediction: str, answers: Sequence[str]) -> float:
    """Exact match of DSPy's `dspy/evaluate/metrics.py`: SQuAD's after NFD, so that one letter has one spelling."""
    return exact_match(_decomposed(prediction), [_decomposed(answer) for answer in answers])


def dpr_has_answer(prediction: str, answers: Sequence[str]) -> float:
    """1.0 when the text contains an answer's tokens in sequence (`has_answer` of `dpr/data/qa_validation.py`)."""
    tokens = _dpr_tokens(prediction)
    return float(any(_contains(tokens, _dpr_tokens(answer)) for answer in answers))


@lru_cache(maxsize=1 << 12)
def _dpr_tokens(text: str) -> tuple[str, ...]:
    return tuple(token.lower() for token in _compiled(_DPR_WORD).findall(_decomposed(text)))


def _contains(tokens: tuple[str, ...], part: tuple[str, ...]) -> bool:
    return any(tokens[start : start + len(part)] == part for start in range(len(tokens) - len(part) + 1))


def _decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def popqa_match(prediction: str, answers: Sequence[str]) -> float:
    """1.0 when the first line contains an answer, lower-cased, capitalized or unchanged (`run_model.py` of adaptive-retrieval)."""
    line = prediction.removeprefix("\n\n").split("\n")[0]
    return float(any(spelling in line for answer in answers for spelling in (answer, answer.lower(), answer.capitalize())))


def selfrag_match(prediction: str, answers: Sequence[str]) -> float:
    """1.0 when the text contains an answer, case-sensitively (`match` of Self-RAG's `retrieval_lm/metrics.py`)."""
    return float(any(answer in prediction for answer in answers))


def asqa_str_em(prediction: str, readings: Sequence[Sequence[str]]) -> float:
    """The fraction of a question's readings with a short answer in the text, both normalized (`compute_str_em` of ALCE's `eval.py`)."""
    text = normalize_answer(prediction)
    return sum(any(normalize_answer(answer) in text for answer in answers) for answers in readings) / len(readings)
