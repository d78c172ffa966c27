"""Leave out passages that hold the text of a question that will be asked (RA-ISF's corpus)."""

import re
from collections.abc import Callable, Iterable

from refinery.contract.records import Passage

_WORD = re.compile(r"\w+")
_HEAD = 3  # words by which a question is looked up; most passages share none with any question


def contamination_check(questions: Iterable[str]) -> Callable[[Passage], bool]:
    """A function that says whether a passage's title and text hold the words of a question, in order; case and punctuation aside.

    A question of fewer than three words is not looked for: it says too little to be the question itself.
    """
    by_head: dict[tuple[str, ...], list[str]] = {}
    for words in map(_words, questions):
        if len(words) >= _HEAD:
            by_head.setdefault(tuple(words[:_HEAD]), []).append(f" {' '.join(words)} ")

    def holds_a_question(passage: Passage) -> bool:
        words = _words(f"{passage.title} {passage.text}")
        heads = by_head.keys() & set(zip(*(words[start:] for start in range(_HEAD)), strict=False))
        text = f" {' '.join(words)} " if heads else ""
        return any(question in text for head in heads for question in by_head[head])

    return holds_a_question


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
