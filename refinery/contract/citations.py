"""Citations in an answer for people: `[2]` in its text is the second of the passages that the answer was written from."""

import re

from refinery.contract.records import Record

_GROUP = re.compile(r" ?\[\s*\d{1,4}(?:\s*[,;]\s*\d{1,4})*\s*\]")
# The end of a text that may be the beginning of a citation.
_OPEN = re.compile(r" ?(?:\[[\s\d,;]*)?$")


class Citations(Record):
    """What an answer for people cites (`cited` in a recipe): the numbers in its text count the passages of `Prediction.read` from 1.

    `answered` is False if the passages do not say, and `cited` has the numbers of the passages that the text cites. `removed` counts the
    citations of passages that were not read, which are no longer in the text. `by_words`: the writer cited none, so the passages that share
    the words of its sentences are cited at the end. `draft` is the decoder's own answer.
    """

    answered: bool
    draft: str
    cited: list[int] = []
    removed: int = 0
    by_words: bool = False


def resolved(text: str, num_passages: int) -> tuple[str, list[int], int]:
    """The text with `[1][3]` in place of `[1, 3]` and without citations of other numbers than 1 to `num_passages`; the numbers that it
    cites, in ascending order; and how many citations were removed."""
    cited, removed = set[int](), 0

    def checked(group: re.Match[str]) -> str:
        nonlocal removed
        numbers = [int(number) for number in re.findall(r"\d+", group[0])]
        known = [number for number in numbers if 0 < number <= num_passages]
        cited.update(known)
        removed += len(numbers) - len(known)
        space = " " if known and group[0].startswith(" ") else ""
        return space + "".join(f"[{number}]" for number in known)

    return _GROUP.sub(checked, text), sorted(cited), removed


def without_citations(text: str) -> str:
    """The text alone."""
    return _GROUP.sub("", text)


def closed_part(text: str) -> str:
    """The part of a text that is still being written in which every citation is complete."""
    return _OPEN.sub("", text)
