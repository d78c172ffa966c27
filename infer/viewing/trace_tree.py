"""Arrange what a decoder did with one question as the tree that a page shows: from its paths if it has any, else from the trace."""

from collections.abc import Sequence

from infer.evaluation.run_inputs import TokenText
from refinery.contract.records import Step, Trajectory
from refinery.contract.trace import Prediction, TraceStep
from refinery.reporting.pages.content import Node, Passages, step_node


def prediction_tree(prediction: Prediction, passages: Passages, token_text: TokenText) -> list[Node]:
    """The steps of a prediction as a tree; steps that several paths share appear once."""
    if prediction.paths:
        return _tree(prediction.paths, _scores(prediction.trace), passages, token_text)
    return _recursion(prediction.trace, passages, token_text)


def _tree(paths: Sequence[Trajectory], scores: dict[str, dict[str, float]], passages: Passages, token_text: TokenText) -> list[Node]:
    roots: list[Node] = []
    built: dict[tuple[tuple[str, str], ...], Node] = {}
    for number, path in enumerate(paths):
        siblings, above = roots, ()
        for step in path.steps[:-1]:
            above = (*above, (step.action, step.text))
            if above not in built:
                built[above] = _path_node(step, scores.get(step.text, {}), passages, token_text)
                siblings.append(built[above])
            siblings = built[above].setdefault("children", [])
        end = _path_node(path.steps[-1], {}, passages, token_text)  # two paths with equal answers remain two leaves
        siblings.append(end | {"path": number})
    return roots


def _path_node(step: Step, scores: dict[str, float], passages: Passages, token_text: TokenText) -> Node:
    node = step_node(step, passages, scores=scores)
    if step.action != "answer":
        node.setdefault("hits", [])
    return node | _written(step, token_text)


def _scores(trace: Sequence[TraceStep]) -> dict[str, dict[str, float]]:
    """Retrieval scores by query and passage id."""
    return {step.question: {hit.id: round(hit.retrieval_score, 3) for hit in step.passages} for step in trace if step.passages}


def _recursion(trace: Sequence[TraceStep], passages: Passages, token_text: TokenText) -> list[Node]:
    """One node per question, sub-question or query, with its steps below it.

    Sub-questions are decoded concurrently, so their steps are mixed in the trace. A step belongs to the node of its question and depth,
    and that node belongs to the nearest one above whose steps name its question.
    """
    nodes: dict[tuple[int, str], Node] = {}
    for step in trace:
        key = (step.depth, step.question)
        if key not in nodes:
            above = _above(key, nodes)
            nodes[key] = {"name": "sub-question" if nodes else "question", "text": step.question}
            if above is not None:
                _append(above, nodes[key])
        _append(nodes[key], _trace_node(step, passages, token_text))
    return list(nodes.values())[:1]


def _above(key: tuple[int, str], nodes: dict[tuple[int, str], Node]) -> Node | None:
    depth, question = key
    higher = [(at, node) for (at, _), node in nodes.items() if at < depth]
    if not higher:
        return next(iter(nodes.values()), None)
    nearest = max(at for at, _ in higher)
    candidates = [node for at, node in higher if at == nearest]
    naming = [node for node in candidates if any(question in child.get("text", "") for child in node.get("children", []))]
    return (naming or candidates)[-1]


def _append(node: Node, child: Node) -> None:
    node.setdefault("children", []).append(child)


def _trace_node(step: TraceStep, passages: Passages, token_text: TokenText) -> Node:
    node: Node = {"name": step.name, **_written(step, token_text, step.role)}
    if step.text is not None:
        node["text"] = step.text.strip()
    if step.shortened:
        node["text"] = f"{step.shortened} shortened to fit the model's context"
    if step.passages is not None:
        node["query"] = step.question
        node["hits"] = [(passages.number(hit), round(hit.retrieval_score, 3)) for hit in step.passages]
    if step.probabilities:
        node["probabilities"] = step.probabilities
    return node


def _written(step: Step | TraceStep, token_text: TokenText, role: str | None = None) -> Node:
    """Tokens with their log-probabilities, if the model gives them."""
    if not step.logprobs or not step.token_ids:
        return {}
    texts = [token_text(token_id, role) for token_id in step.token_ids]
    return {"tokens": texts, "logprobs": [round(logprob, 4) for logprob in step.logprobs]}
