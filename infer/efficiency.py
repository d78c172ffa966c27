"""How much a method iterates and reads, as MIGRES' Table 4 counts it, from the traces alone."""

from collections.abc import Sequence
from statistics import fmean

from infer.trace import Prediction


def efficiency(predictions: Sequence[Prediction | None]) -> dict[str, float]:
    """Means over the answered questions: `iterations` ("# Iter"), and `passages_per_iteration` ("# Passages"), which the model was shown.

    "# API" is the cost's `calls`. An iteration is a depth of the trace. Passages are those that a filter left where a step of the trace is
    called `filter`, else those retrieved; decoders that show earlier ones again (ReAct, Self-Ask) show more, as the paper counts for them.
    """
    answered = [prediction for prediction in predictions if prediction]
    if not answered:
        return {"iterations": 0.0, "passages_per_iteration": 0.0}
    iterations = [1 + max((step.depth for step in prediction.trace), default=0) for prediction in answered]
    passages = [_passages(prediction) / count for prediction, count in zip(answered, iterations, strict=True)]
    return {"iterations": round(fmean(iterations), 2), "passages_per_iteration": round(fmean(passages), 2)}


def _passages(prediction: Prediction) -> int:
    filtered = [step for step in prediction.trace if step.name == "filter"]
    read = filtered or [step for step in prediction.trace if step.name == "retrieve"]
    return sum(len(step.passages or []) for step in read)
