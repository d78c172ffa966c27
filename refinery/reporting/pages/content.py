"""What a page holds, as the scripts in it read it. Every text may come from outside; the scripts show it as text and never as markup.

A row is a question. Each run has views of it (an infer run its selections, a distill run its labels), of which a table cell shows one,
and a detail that is unpacked when the row is opened.
"""

from collections.abc import Collection
from typing import Literal, TypedDict

from refinery.contract.control_tokens import token_for
from refinery.contract.records import Passage, Step


class Node(TypedDict, total=False):
    """Something that happened, and what came of it (`children`). `token` is the control token that opened it.

    `hits` are numbers into the detail's passages with their retrieval score, `path` is the number of the finished path that ends here.
    """

    name: str
    token: str
    text: str
    query: str
    hits: list[tuple[int, float | None]]
    probabilities: dict[str, float]
    tokens: list[str]
    logprobs: list[float]
    path: int
    children: "list[Node]"


class Selection(TypedDict):
    """How one view chooses a path: the lowest or highest value, or the key whose values sum to the most."""

    by: Literal["lowest", "highest", "sum"]
    values: list[float | None]
    keys: list[str] | None


class PromptCompletion(TypedDict, total=False):
    """What was sent to a teacher and what it replied."""

    prompt: list[tuple[str, str]]
    reply: str
    facts: str


class Leaf(TypedDict):
    """Where a path ends: its answer, the actions before it, and what the answer scores."""

    answer: str
    actions: list[str]
    score: float | None


class RunDetail(TypedDict, total=False):
    """What one run did with one question. `passages` are id, title, text and whether it is a gold one."""

    facts: list[tuple[str, str]]
    nodes: list[Node]
    passages: list[tuple[str, str, str, bool]]
    leaves: list[Leaf]
    selections: dict[str, Selection]
    exchanges: list[PromptCompletion]


class Detail(TypedDict):
    """One question; `runs` has None for a run that did not get to it."""

    facts: list[tuple[str, str]]
    runs: list[RunDetail | None]


class Cell(TypedDict):
    """What a table shows of one row in one view; a `score` from 0.5 on counts as right, None as not judged."""

    text: str
    score: float | None


class Row(TypedDict):
    """One question: `cells` by run and view, None for a run without it."""

    id: str
    text: str
    groups: list[str]
    cells: list[list[Cell] | None]


class Run(TypedDict):
    """A run: what it is called, its views, and the number of the one that it was made with."""

    name: str
    views: list[str]
    own: int


class Passages:
    """The passages of one detail, each once."""

    def __init__(self, gold: Collection[str] = ()) -> None:
        self.rows: list[tuple[str, str, str, bool]] = []
        self._gold, self._numbers = gold, dict[tuple[str, str], int]()

    def number(self, passage: Passage) -> int:
        """Where the passage stands in `rows`."""
        key = (passage.id, passage.text)
        if key not in self._numbers:
            self._numbers[key] = len(self.rows)
            self.rows.append((passage.id, passage.title, passage.text, passage.id in self._gold))
        return self._numbers[key]


def step_node(step: Step, passages: Passages, *, scores: dict[str, float] | None = None) -> Node:
    """A step of a trajectory; `scores` are the retrieval scores by passage id, where they are known."""
    node: Node = {"name": step.action, "token": token_for(step.action).token, "text": step.text}
    if step.passages:
        node["hits"] = [(passages.number(passage), (scores or {}).get(passage.id)) for passage in step.passages]
    return node
