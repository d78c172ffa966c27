"""How a prediction shows itself in a notebook: the answer, the tree of what the decoder did, and the sources. All text is literal."""

from collections.abc import Sequence
from html import escape
from typing import Protocol

from refinery.contract.records import Passage
from refinery.text import one_line, printable

_MOST_CHARACTERS = 300


class ShownStep(Protocol):
    """The part of a trace step that is shown."""

    name: str
    depth: int
    question: str
    text: str | None

    @property
    def passages(self) -> Sequence[Passage] | None:
        """The passages of a search."""
        ...


def prediction_html(answer: str, steps: Sequence[ShownStep], read: Sequence[Passage]) -> str:
    """HTML of an answer, with the steps below it, each indented by its depth, and the passages that it was written from."""
    did = "".join(f'<div style="margin-left:{1.5 * step.depth}em">{_line(step)}</div>' for step in steps)
    sources = "".join(f"<li><details><summary>{_text(p.title or p.id)}</summary>{_text(p.text)}</details></li>" for p in read)
    return (
        f"<div><p><b>{_text(answer)}</b></p><details><summary>{len(steps)} steps</summary>{did}</details>"
        f"{f'<p>Sources</p><ol>{sources}</ol>' if sources else ''}</div>"
    )


def _line(step: ShownStep) -> str:
    titles = "; ".join(passage.title or passage.id for passage in step.passages or [])
    said = step.text if step.passages is None else f"{step.question}: {titles or 'nothing'}"
    return f"<i>{_text(step.name.replace('_', ' '))}</i> {_text(said or step.question, _MOST_CHARACTERS)}"


def _text(text: str, most: int | None = None) -> str:
    return escape(printable(one_line(text))[:most])
