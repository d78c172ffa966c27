"""What two engines' trees of the same questions are compared by."""

from refinery.contract.trace import Prediction


def trees(predictions: list[Prediction]) -> dict[tuple[str, tuple[int, ...]], list[float]]:
    """The log-probabilities of each path's tokens, and the mean of what it has read, by its question and its tokens."""
    found = {}
    for prediction in predictions:
        for path in prediction.paths:
            tokens = tuple(token for step in path.steps for token in step.token_ids or ())
            read = [path.reading.logprob / path.reading.num_tokens] if path.reading else []
            found[prediction.question_id, tokens] = [value for step in path.steps for value in step.logprobs or ()] + read
    return found
