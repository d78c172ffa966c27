"""Right and wrong paths of RQ-RAG trees: what a selector learns to choose by, the problem that Sec. 4.3 leaves open.

The trees come from finished infer runs over training questions (`runs`), each path labelled by its answer. A path counts once however
often the trees hold it. Of a question that has both, as many right paths as wrong ones are kept, so that a selector learns to tell them
apart and not which questions are easy; and of either those that the generator finds likeliest, since a tree forces many more on it.
"""

from typing import Literal

from pydantic import Field

from distill.label_context import LabelContext
from distill.label_task import LabelTask
from distill.steps.tree_paths import AnswerMetric, labelled_trees, likeliest
from refinery.contract.records import Question, SelectionLabel, Trajectory
from refinery.runtime.recipe import Recipe
from refinery.tasks.selection import selection_prompt


class Options(Recipe):
    """What counts as right, and how many paths of a question are kept."""

    metric: AnswerMetric = Field(default="em.squad", description="an answer is right from a score of 0.5 on")
    most_per_question: int = Field(default=4, description="paths kept of a question, at most half of them right and half wrong", ge=2)
    one_sided: Literal["leave_out", "keep"] = Field(
        default="leave_out", description="a question whose paths are all right, or all wrong, says nothing about choosing"
    )


def needs(options: Options) -> tuple[str, ...]:
    """Parts of the recipe that must be there."""
    return ("runs",)


async def label(question: Question, context: LabelContext) -> list[SelectionLabel]:
    """The labelled paths, right ones first; none for a one-sided question that is left out.

    Raises RejectedRow where a run left no tree or the question has no gold answer.
    """
    trees, options = labelled_trees(question, context), context.options
    # What a selector reads decides which paths are the same.
    right, wrong = (likeliest((path for tree in trees for path in tree[side]), selection_prompt) for side in (0, 1))
    if not (right and wrong) and options.one_sided == "leave_out":
        return []
    half = options.most_per_question // 2
    each = min(half, len(right), len(wrong)) or half
    return [
        *(_labelled(path, "right", context) for path in right[:each]),
        *(_labelled(path, "wrong", context) for path in wrong[:each]),
    ]


def _labelled(path: Trajectory, label: Literal["right", "wrong"], context: LabelContext) -> SelectionLabel:
    return SelectionLabel(
        question_id=path.question_id,
        question=path.question,
        path=path,
        label=label,
        provenance=context.provenance("selection"),
    )


LABEL_TASK = LabelTask(label, Options, needs)
