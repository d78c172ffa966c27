"""Grades of trajectories: whether their searches find the annotated passages, and whether they end in a gold answer."""

from collections.abc import Mapping, Sequence

from distill.task_grades import Grader, GradingContext, Outcome, labels_of
from refinery.contract.formats import SEARCH_ACTIONS
from refinery.contract.records import Question, Trajectory
from refinery.metrics.graded import Graded


async def _grade(question: Question, outcome: Outcome, context: GradingContext) -> Mapping[str, Graded]:
    """Support recall and answer scores, which are 0 for a rejected question, and the number of searches of a trajectory."""
    from refinery.metrics.registry import DEFAULT_METRICS, find_metric

    paths: Sequence[Trajectory] = labels_of(outcome)
    rows, counts = len(paths) or 1, dict[str, tuple[float, float]]()
    if question.supporting:
        recall = find_metric("recall.retrieval").score
        counts["support recall"] = sum(recall(_found(path), question.supporting) for path in paths), rows
    for name in DEFAULT_METRICS if question.answers else ():
        score = find_metric(name).score
        counts[name] = sum(score(path.answer, question.answers) for path in paths), rows
    if not counts:
        return {}
    correct, _ = counts[DEFAULT_METRICS[0] if question.answers else "support recall"]
    searches = sum(step.action in SEARCH_ACTIONS for path in paths for step in path.steps)
    return {"passages and answers": Graded(counts | {"searches": (searches, len(paths))}, correct)}


def _found(path: Trajectory) -> set[str]:
    return {passage.id for step in path.steps for passage in step.passages}


TRAJECTORIES = Grader(Trajectory, _grade)
