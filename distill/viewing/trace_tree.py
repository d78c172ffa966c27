"""Arrange distilled rows of any task for a page, by the fields that they have, so that third-party tasks are shown too."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from refinery.contract.records import Passage, Step
from refinery.reporting.pages.content import Node, Passages, step_node

_SHOWN_ELSEWHERE = ("question_id", "question", "split", "provenance")


def label_tree(rows: Sequence[dict[str, Any]], question: str | None, passages: Passages) -> list[Node]:
    """The rows of one question as a tree; rows about a sub-question are below it."""
    nodes: list[Node] = []
    about: dict[str, Node] = {}
    for row in rows:
        asked, made = row.get("question", question), _row_nodes(row, passages)
        if asked == question:
            nodes += made
            continue
        if asked not in about:
            about[asked] = {"name": "sub-question", "text": asked}
            nodes.append(about[asked])
        about[asked].setdefault("children", []).extend(made)
    return nodes


def groups_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The groups that the page can filter by: the split, and the labels or actions."""
    groups = [row["split"] for row in rows] + [row["label"] for row in rows if "label" in row]
    return list(dict.fromkeys(groups + [step["action"] for row in rows for step in row.get("steps", []) if step["action"] != "answer"]))


def _row_nodes(row: dict[str, Any], passages: Passages) -> list[Node]:
    if "steps" in row:
        return _steps(row, passages)
    if paths := [(name, row[name]) for name in ("path", "chosen", "rejected") if name in row]:
        return [{"name": row.get("label", name), "text": "", "children": _steps(path, passages)} for name, path in paths]
    if "sub_questions" in row:
        return [{"name": f"sub-question {number}", "text": text} for number, text in enumerate(row["sub_questions"], 1)]
    if "passage" in row:
        disagrees = " (judged differently in the other order of the passages)" if row.get("order_agrees") is False else ""
        return [{"name": row["label"], "text": disagrees, "hits": [(passages.number(Passage.model_validate(row["passage"])), None)]}]
    if "label" in row:
        replies: list[Node] = [{"name": "reply", "text": reply} for reply in row.get("replies", [])]
        return [{"name": row["label"], "text": f"share {row['share']:.2f}" if "share" in row else "", "children": replies}]
    rest = {name: value for name, value in row.items() if name not in _SHOWN_ELSEWHERE}
    return [
        {"name": name, "text": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)} for name, value in rest.items()
    ]


def _steps(path: dict[str, Any], passages: Passages) -> list[Node]:
    """The steps, each below the one that led to it."""
    steps = [step_node(Step.model_validate(step), passages) for step in path["steps"]]
    for step, after in pairwise(steps):
        step["children"] = [after]
    return steps[:1]
