"""Preference pairs for DPO: a path that ends in a right answer, and a path of the same RQ-RAG tree that does not.

This addresses the gap of RQ-RAG Sec. 4.3: a generator that gives its right paths a higher probability does not need a selector. The trees
come from finished infer runs over training questions (`runs`).
"""

from pydantic import Field

from distill.label_context import LabelContext
from distill.label_task import LabelTask
from distill.steps.trees.tree_paths import AnswerMetric, labeled_trees, likeliest
from refinery.contract.records import Preference, Question, Trajectory
from refinery.runtime.recipe import Recipe


class Options(Recipe):
    """Which answers are right, and how many pairs a question gives."""

    metric: AnswerMetric = Field(default="em.squad", description="an answer is right if its score is at least 0.5")
    most_per_question: int = Field(default=4, description="maximum pairs per question; no path is in two pairs", ge=1)


def needs(options: Options) -> tuple[str, ...]:
    """The recipe keys that this task requires."""
    return ("runs",)


async def label(question: Question, context: LabelContext) -> list[Preference]:
    """The pairs, most likely paths first; none if all paths are right or all are wrong. Raises RejectedRow like `labeled_trees`."""
    pairs = [
        pair
        for right, wrong in labeled_trees(question, context)
        for pair in zip(likeliest(right, _written), likeliest(wrong, _written), strict=False)
    ]
    return [
        Preference(question_id=question.id, question=chosen.question, chosen=chosen, rejected=rejected, provenance=context.provenance())
        for chosen, rejected in pairs[: context.options.most_per_question]
    ]


def _written(path: Trajectory) -> str:
    """What the model wrote; DPO learns nothing from paths that differ only in other text."""
    return "\n".join(f"{step.action} {step.text}" for step in path.steps)


LABEL_TASK = LabelTask(label, Options, needs, needs_answers=lambda options: True)
