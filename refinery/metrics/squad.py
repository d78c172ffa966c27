"""Exact match and token F1 as SQuAD's `evaluate-v1.1.py` defines them; the best over all gold answers counts."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

PUNCTUATION = re.compile(f"[{re.escape(string.punctuation)}]+")
ARTICLES = re.compile(r"\b(a|an|the)\b")
# The same for ASCII, as bytes: lower case, white space a space, and what ends a word without being white space a 0.
_PUNCTUATION = string.punctuation.encode()
_SPACES = bytes(byte for byte in range(128) if chr(byte).isspace())
_ODD = bytes(byte for byte in (*range(32), 127) if byte not in _SPACES)
_LOWER = bytes.maketrans(
    string.ascii_uppercase.encode() + _SPACES + _ODD, string.ascii_lowercase.encode() + b" " * len(_SPACES) + bytes(len(_ODD))
)
_DROPPED = (b"  ", b" a ", b" an ", b" the ")


@lru_cache(maxsize=1 << 12)  # several metrics and checks in a row read the same text; more would keep a run's long texts
def normalize_answer(text: str) -> str:
    """Lower case, ASCII punctuation deleted, articles dropped, white space collapsed."""
    if text.isascii():
        kept = b" %b " % text.encode().translate(_LOWER, _PUNCTUATION)
        if 0 not in kept:  # then words end at white space only, and no expression needs to look for their ends
            for dropped in _DROPPED:
                while len(shorter := kept.replace(dropped, b" ")) < len(kept):  # again, because neighbours share a space
                    kept = shorter
            return kept[1:-1].decode()
    return " ".join(ARTICLES.sub(" ", PUNCTUATION.sub("", text.lower())).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1.0 when the normalised prediction equals a normalised gold answer, else 0.0."""
    predicted = normalize_answer(prediction)
    return float(any(predicted == normalize_answer(answer) for answer in answers))


def token_f1(prediction: str, answers: Sequence[str]) -> float:
    """F1 over normalised tokens; 0.0 when either side has none."""
    predicted = normalize_answer(prediction)
    return max((normalized_f1(predicted, normalize_answer(answer)) for answer in answers), default=0.0)


def normalized_f1(predicted: str, gold: str) -> float:
    """F1 over the tokens of two normalised texts; 0.0 when either has none."""
    if predicted == gold:
        return float(predicted != "")
    predicted_tokens, gold_tokens = predicted.split(), gold.split()
    predicted_words, gold_words = set(predicted_tokens), set(gold_tokens)
    shared = len(predicted_words & gold_words)
    if not shared:
        return 0.0
    if len(predicted_words) < len(predicted_tokens) and len(gold_words) < len(gold_tokens):
        shared = (Counter(predicted_tokens) & Counter(gold_tokens)).total()  # only where both repeat a word does it count more than once
    precision, recall = shared / len(predicted_tokens), shared / len(gold_tokens)
    return 2 * precision * recall / (precision + recall)
