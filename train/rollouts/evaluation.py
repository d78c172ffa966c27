"""Scores of decoded answers: the recipe's metric, and the searches that they took."""

from collections.abc import Mapping, Sequence

from refinery.contract.records import Question
from refinery.contract.trace import Prediction
from refinery.metrics.registry import score_all


def decoded_scores(answers: Mapping[str, Sequence[Prediction]], questions: Sequence[Question], metric: str) -> dict[str, float]:
    """The mean of each way to decode, with its prefix: `answer_score` and `searches`."""
    scores: dict[str, float] = {}
    for prefix, predictions in answers.items():
        scores[f"{prefix}answer_score"] = sum(scores_of(predictions, questions, metric)) / len(questions)
        scores[f"{prefix}searches"] = sum(prediction.cost.retrievals for prediction in predictions) / len(questions)
    return scores


def scores_of(predictions: Sequence[Prediction], questions: Sequence[Question], metric: str) -> list[float]:
    """The metric of each answer; 0 without one."""
    answers = [prediction.answer if prediction.has_answer else None for prediction in predictions]
    return score_all([metric], answers, questions)[metric].tolist()
