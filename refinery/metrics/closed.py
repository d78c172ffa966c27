"""Accuracy where the answer is one of a few: a letter, or yes or no."""

import re
from collections.abc import Sequence

_LETTER_OF_NUMBER = dict(zip("12345", "ABCDE", strict=True))
# A bare letter (up to J: KQA Pro has ten choices), as RQ-RAG's students write it, also with what may close it off: "B", "(B)", "B: Lyon".
_LEADING_LETTER = re.compile(r"\s*\(?([A-J])\)?(?:[:.)]|\s*$)")
# RQ-RAG's extraction (sample_from_tree.py), where the end of the text stands for its [EOS], and "Answer: B".
_STATED_LETTER = re.compile(r"(?:\bis |[Aa]nswer: ?)\(?([A-J])\)?(?:[:.)\s]|$)")
_BOOLEAN = re.compile(r"\b(yes|true|no|false)\b")


def choice_accuracy(prediction: str, answers: Sequence[str]) -> float:
    """1.0 when the letter that the prediction opens with, else the last it states ("is B."), is the right one.

    RQ-RAG's `sample_from_tree.py`, whose answers are bare letters; labels 1 to 5 are A to E. A letter inside a word never counts.
    """
    leading = _LEADING_LETTER.match(prediction)
    stated = [leading[1]] if leading else _STATED_LETTER.findall(prediction)
    return float(bool(stated) and stated[-1] in {_LETTER_OF_NUMBER.get(answer, answer) for answer in answers})


def yesno_accuracy(prediction: str, answers: Sequence[str]) -> float:
    """1.0 when the first yes, true, no or false of the prediction means what the gold answer does; without one it is wrong."""
    said = says_yes(prediction)
    return float(said is not None and any(said == says_yes(answer) for answer in answers))


def judged(implied: bool, answers: Sequence[str]) -> float:
    """1.0 when a judge, who was shown the gold answers, said that the prediction implies them."""
    return float(implied)


def says_yes(text: str) -> bool | None:
    """Whether the first yes, true, no or false in a text is a yes or true; None where there is none of them."""
    first = _BOOLEAN.search(text.lower())
    return first[1] in ("yes", "true") if first else None
