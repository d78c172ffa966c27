"""The passages behind an answer as annotations of its text, which clients show as links."""

import re
from dataclasses import dataclass

from infer.steps.cited_answer import is_answered
from refinery.contract.records import Passage
from refinery.contract.trace import Prediction

_ADDRESS = re.compile(r"https?://\S+")


@dataclass(frozen=True, slots=True)
class Annotation:
    """A passage, and the characters of the text that rest on it: its `[2]`, or the whole text where nothing is cited."""

    passage: Passage
    start: int
    end: int

    @property
    def title(self) -> str:
        """The passage's title, or its ID where it has none."""
        return self.passage.title or self.passage.id

    @property
    def url(self) -> str | None:
        """The passage's address; None for one that is not from the web."""
        return self.passage.id if _ADDRESS.fullmatch(self.passage.id) else None


def annotations(prediction: Prediction, text: str) -> list[Annotation]:
    """The passages that the text cites, once for each citation; without citations, all that an answer was written from."""
    read = prediction.read or []
    if not is_answered(prediction) or not read:
        return []
    if prediction.citations is None:
        return [Annotation(passage, 0, min(len(text), len(prediction.answer))) for passage in read]
    marks = [(passage, mark) for number, passage in enumerate(read, 1) for mark in re.finditer(rf"\[{number}\]", text)]
    return [Annotation(passage, mark.start(), mark.end()) for passage, mark in sorted(marks, key=lambda found: found[1].start())]
