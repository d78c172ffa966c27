"""Preference pairs for DPO: a path that ends in a right answer, and one of the same RQ-RAG tree that does not.

The problem is Sec. 4.3's again: a generator that finds its right paths likelier needs no selector. The trees come from finished infer runs
over training questions (`runs`).
"""

from pydantic import Field

from distill.label_context import LabelContext
from distill.label_task import LabelTask
from distill.steps.tree_paths import AnswerMetric, labelled_trees, likeliest
from refinery.contract.records import Preference, Question, Trajectory
from refinery.runtime.recipe import Recipe


class Options(Recipe):
    """What counts as right, and how many pairs a tree gives."""

    metric: AnswerMetric = Field(default="em.squad", description="an answer is right from a score of 0.5 on")
    most_per_question: int = Field(default=4, description="pairs of a question; no path is in two of them", ge=1)


def needs(options: Options) -> tuple[str, ...]:
    """Parts of the recipe that must be there."""
    return ("runs",)


async def label(question: Question, context: LabelContext) -> list[Preference]:
    """The pairs, likeliest paths first; none where every path is right, or every one wrong. Raises RejectedRow as `labelled_trees` does."""
    pairs = [
        pair
        for right, wrong in labelled_trees(question, context)
        for pair in zip(likeliest(right, _written), likeliest(wrong, _written), strict=False)
    ]
    return [
        Preference(question_id=question.id, question=chosen.question, chosen=chosen, rejected=rejected, provenance=context.provenance())
        for chosen, rejected in pairs[: context.options.most_per_question]
    ]


def _written(path: Trajectory) -> str:
    """What the model wrote: paths that differ in nothing else teach DPO nothing else."""
    return "\n".join(f"{step.action} {step.text}" for step in path.steps)


LABEL_TASK = LabelTask(label, Options, needs)
