"""Leave out passages that contain the text of an evaluation question (RA-ISF's corpus)."""

import re
from collections.abc import Callable, Iterable

from refinery.contract.records import Passage
from refinery.unspaced import letters_apart

_WORD = re.compile(r"\w+")
_HEAD = 3  # questions are looked up by their first words; most passages contain no such head


def contamination_check(questions: Iterable[str]) -> Callable[[Passage], bool]:
    """A function that says whether a passage's title and text contain a question's words in order, ignoring case and punctuation.

    Questions of fewer than three words are skipped, because such a match could be a coincidence.
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

    return holds_a_question if by_head else lambda passage: False


def _words(text: str) -> list[str]:
    return _WORD.findall(letters_apart(text.lower()))
