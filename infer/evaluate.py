"""Score predictions: exact match and token F1 on all questions and by kind, with what they cost."""

from collections.abc import Callable, Sequence
from typing import Any

from infer.selection import STRATEGIES
from infer.trace import Prediction
from refinery.metrics.squad import exact_match, token_f1
from refinery.records import Question

Metric = Callable[[str, Sequence[str]], float]
_METRICS: dict[str, Metric] = {"em": exact_match, "f1": token_f1}


def evaluate(name: str, questions: Sequence[Question], predictions: Sequence[Prediction], *, seconds: float) -> dict[str, Any]:
    """Scores in percent per system and question group. A tree decoder gives one system per selection, and the upper bound.

    `seconds` is the wall time of the whole run, which all questions share.
    """
    if predictions and predictions[0].selected:
        systems = {f"{name}_{strategy}": [[p.selected[strategy]] for p in predictions] for strategy in STRATEGIES}
        systems[f"{name}_upper_bound"] = [[path.answer or "" for path in p.paths] for p in predictions]
    else:
        systems = {name: [[p.answer] for p in predictions]}
    cost = _cost_per_question(predictions, seconds)
    return {system: _scores(questions, candidates) | {"cost_per_question": cost} for system, candidates in systems.items()}


def _scores(questions: Sequence[Question], candidates: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Each group's scores; of several candidates the best counts (the upper bound of RQ-RAG Sec. 2.3)."""
    scored = [
        {metric: max(score(text, question.answers) for text in texts) for metric, score in _METRICS.items()}
        for question, texts in zip(questions, candidates, strict=True)
    ]
    groups: dict[str, list[int]] = {"all": list(range(len(questions)))}
    for i, question in enumerate(questions):
        for group in _groups(question):
            groups.setdefault(group, []).append(i)
    return {
        group: {"questions": len(members)}
        | {metric: round(100 * sum(scored[i][metric] for i in members) / len(members), 2) for metric in _METRICS}
        for group, members in groups.items()
    }


def _groups(question: Question) -> set[str]:
    groups = {question.type} if question.type else set()
    if question.decomposition:
        groups.add("multi_hop" if len(question.decomposition) > 1 else "single_hop")
    return groups


def _cost_per_question(predictions: Sequence[Prediction], seconds: float) -> dict[str, float]:
    def mean(field: str) -> float:
        return round(sum(getattr(p.cost, field) for p in predictions) / len(predictions), 2)

    fields = ("calls", "retrievals", "prefill_tokens", "decode_tokens")
    return {field: mean(field) for field in fields} | {"seconds": round(seconds / len(predictions), 4)}
