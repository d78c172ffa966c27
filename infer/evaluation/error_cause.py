"""The cause of a wrong answer: the first thing that went wrong on the way to it, from the question and the prediction alone.

All supporting passages of a question are needed for its answer, as in the retrieval metrics. Without their ids (or with a corpus that has
different ids), the cause is unknown once a search was made.
"""

from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Literal

from refinery.contract.records import Question, Trajectory
from refinery.contract.trace import Prediction, TraceStep
from refinery.tasks.relevance import RELEVANT

Why = Literal[
    "fault",
    "truncated",
    "unparsed",
    "another path is right",
    "not searched",
    "not retrieved",
    "partly retrieved",
    "retrieved but judged irrelevant",
    "misread",
    "unknown",
]
_BY_FAULT: dict[str, Why] = {
    "truncated": "truncated",
    "unparsed": "unparsed",
    "malformed": "unparsed",
    "refused": "fault",
    "empty": "fault",
}


def why_wrong(
    question: Question,
    prediction: Prediction,
    *,
    path: Trajectory | None = None,
    right_elsewhere: bool = False,
    relevance_threshold: float = 0.5,
) -> Why:
    """The cause of the prediction's wrong answer. `path` is the selected one of a tree; `right_elsewhere`: another path is right.

    - `fault`: a search or the model failed, or the model refused or wrote nothing.
    - `truncated`: the answer reached the token limit. `unparsed`: the reply states no answer in the requested form.
    - `not searched`: answered from the model's memory. `not retrieved`, `partly retrieved`: none, or not all, of the supporting
      passages were found. `retrieved but judged irrelevant`: all were found, and a judge or filter dropped one.
    - `misread`: all of them were read. A decoder whose judge writes prose shows the model every passage, so they count as read.
    """
    if prediction.failed is not None:
        return "fault"
    if found := _fault_of(path) if path else _last_fault(prediction.trace):
        return found
    if right_elsewhere:
        return "another path is right"
    needed = set(question.supporting or ())
    retrieved, read = _on_path(path) if path else _in_trace(prediction.trace, relevance_threshold)
    if retrieved is None:
        return "not searched"
    return _of_passages(needed, retrieved, read) if needed else "unknown"


def _last_fault(trace: Sequence[TraceStep]) -> Why | None:
    """The cause from the faults of the last reply, which is the answer. The decoder recovered from earlier ones."""
    last = takewhile(lambda step: step.name == "fault", reversed(trace))
    reasons = [(step.text or "").partition(":")[0] for step in last]
    return next((_BY_FAULT[reason] for reason in reversed(reasons) if reason in _BY_FAULT), None)


def _fault_of(path: Trajectory) -> Why | None:
    return None if path.steps[-1].text.strip() else "fault"


def _of_passages(needed: set[str], retrieved: Collection[str], read: Collection[str]) -> Why:
    if needed.isdisjoint(retrieved):
        return "not retrieved"
    if not needed.issubset(retrieved):
        return "partly retrieved"
    return "misread" if needed.issubset(read) else "retrieved but judged irrelevant"


def _on_path(path: Trajectory) -> tuple[set[str] | None, set[str]]:
    """The ids of the passages retrieved on a tree's path (None without a search), and of those read, which are all of them."""
    ids = {passage.id for step in path.steps for passage in step.passages}
    return (ids if len(path.steps) > 1 else None), ids


def _in_trace(trace: Sequence[TraceStep], relevance_threshold: float) -> tuple[set[str] | None, set[str]]:
    """The ids of the passages that were retrieved, or None without a search, and of those that the model then read."""
    searches = [step for step in trace if step.name == "retrieve"]
    if not searches:
        return None, set()
    retrieved = _ids(searches)
    if filters := [step for step in trace if step.name == "filter"]:
        return retrieved, _ids(filters)
    judged = [step for step in trace if step.name == "relevance" and step.probabilities]
    if not judged:
        return retrieved, retrieved
    kept = {(step.question, step.text) for step in judged if (step.probabilities or {}).get(RELEVANT, 0.0) >= relevance_threshold}
    return retrieved, {hit.id for step in searches for hit in step.passages or [] if (step.question, hit.title) in kept}


def _ids(steps: Sequence[TraceStep]) -> set[str]:
    return {passage.id for step in steps for passage in step.passages or []}
