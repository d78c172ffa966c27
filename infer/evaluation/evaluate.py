"""The results of a run: the mean of every metric with its interval, on all questions and by kind, with costs and faults."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from infer.evaluation.efficiency import efficiency
from infer.evaluation.scores import QuestionScores
from refinery.contract.tokenizer import Tokenizer
from refinery.contract.trace import Prediction
from refinery.metrics.bootstrap import interval
from refinery.metrics.registry import DEFAULT_METRICS, METRICS, metrics_of

_COSTS = ("calls", "retrievals", "prefill_tokens", "decode_tokens")


def evaluate(
    rows: Sequence[QuestionScores], predictions: Sequence[Prediction | None], *, seconds: float, tokenizer: Tokenizer | None = None
) -> dict[str, Any]:
    """Scores in percent per system and question group; `em` and `f1` are SQuAD's.

    `default_metrics` are those that papers report on these datasets. `seconds` is the wall time of the whole run, which all systems share.
    `tokenizer` counts the knowledge that was read (infer/evaluation/efficiency.py), and `knowledge_unit` says whether one was given.
    `faults` counts the faults of all questions together by reason.
    """
    spent = total_cost(predictions, seconds=seconds)
    cost = {field: round(value / len(rows), 4 if field == "seconds" else 2) for field, value in spent.items()}
    shared = {
        "cost_per_question": cost | efficiency(predictions, tokenizer=tokenizer),
        "knowledge_unit": "words" if tokenizer is None else "tokens",
        "faults": count_faults(predictions),
    }
    return {system: _by_group(rows, system) | {"default_metrics": default_metrics(rows, system)} | shared for system in rows[0].scores}


def count_faults(predictions: Sequence[Prediction | None]) -> dict[str, int]:
    """The number of `fault` steps in all traces, by the reason at the beginning of each, most frequent first."""
    steps = [step for prediction in predictions if prediction for step in prediction.trace if step.name == "fault"]
    return dict(Counter((step.text or "").partition(":")[0] for step in steps).most_common())


def total_cost(predictions: Sequence[Prediction | None], *, seconds: float) -> dict[str, float]:
    """The total cost of all predictions."""
    costs = [prediction.cost for prediction in predictions if prediction]
    return {field: sum(getattr(cost, field) for cost in costs) for field in _COSTS} | {"seconds": round(seconds, 4)}


def default_metrics(rows: Sequence[QuestionScores], system: str) -> list[str]:
    """The metrics of the rows' datasets that apply to at least one question, and the additional ones that the recipe names."""
    wanted = dict.fromkeys(metric for dataset in dict.fromkeys(row.dataset for row in rows) for metric in metrics_of(dataset))
    scored = dict.fromkeys(metric for row in rows for metric in row.scores[system])
    shown = [metric for metric in wanted if metric in scored] or list(DEFAULT_METRICS)
    return [*shown, *(metric for metric in scored if metric not in METRICS)]


def group_rows(rows: Sequence[QuestionScores]) -> dict[str, list[QuestionScores]]:
    """The rows of each group, `all` first."""
    groups = {"all": list(rows)}
    for row in rows:
        for group in row.groups:
            groups.setdefault(group, []).append(row)
    return groups


def _by_group(rows: Sequence[QuestionScores], system: str) -> dict[str, Any]:
    return {group: _means([row.scores[system] for row in members]) for group, members in group_rows(rows).items()}


def _means(scores: Sequence[dict[str, float]]) -> dict[str, Any]:
    values: dict[str, list[float]] = {}
    for of_question in scores:
        for metric, value in of_question.items():
            values.setdefault(metric, []).append(value)
    metrics = {metric: _interval(found) for metric, found in values.items()}
    em, f1 = (metrics[name]["mean"] if name in metrics else None for name in DEFAULT_METRICS)  # None: no question has a gold answer
    return {"questions": len(scores), "em": em, "f1": f1, "metrics": metrics}


def _interval(values: list[float]) -> dict[str, float]:
    """Mean and interval in percent, over the questions that the metric applies to."""
    found = interval(100 * np.array(values))
    return {"mean": round(found.mean, 2), "low": round(found.low, 2), "high": round(found.high, 2), "questions": len(values)}
