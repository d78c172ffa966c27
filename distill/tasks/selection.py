"""Right and wrong paths of RQ-RAG trees, from which a selector learns to choose. RQ-RAG Sec. 4.3 leaves this problem open.

The trees come from finished infer runs over training questions (`runs`), and each path is labeled by its answer. A path counts once, even
if several trees contain it. If a question has both kinds, equally many right and wrong paths are kept, so that a selector learns to tell
paths apart instead of easy questions. Of each kind, the paths that the generator finds most likely are kept, because a tree also contains
many unlikely ones.
"""

from typing import Literal

from pydantic import Field

from distill.grading.judgements import SELECTION
from distill.label_context import LabelContext
from distill.label_task import LabelTask
from distill.steps.trees.tree_paths import AnswerMetric, labeled_trees, likeliest
from refinery.contract.records import Question, SelectionLabel, Trajectory
from refinery.runtime.recipe import Recipe
from refinery.tasks.selection import selection_prompt


class Options(Recipe):
    """Which answers are right, and how many paths per question are kept."""

    metric: AnswerMetric = Field(default="em.squad", description="an answer is right if its score is at least 0.5")
    most_per_question: int = Field(default=4, description="maximum paths per question, half of them right and half wrong", ge=2)
    one_sided: Literal["leave_out", "keep"] = Field(
        default="leave_out", description="what to do with a question whose paths are all right or all wrong, which does not teach choosing"
    )


def needs(options: Options) -> tuple[str, ...]:
    """The recipe keys that this task requires."""
    return ("runs",)


async def label(question: Question, context: LabelContext) -> list[SelectionLabel]:
    """The labeled paths, right ones first; none for a one-sided question that is left out.

    Raises RejectedRow if a run has no tree for the question or the question has no gold answer.
    """
    trees, options = labeled_trees(question, context), context.options
    # Two paths are the same if a selector would read the same text.
    right, wrong = (likeliest((path for tree in trees for path in tree[side]), selection_prompt) for side in (0, 1))
    if not (right and wrong) and options.one_sided == "leave_out":
        return []
    half = options.most_per_question // 2
    each = min(half, len(right), len(wrong)) or half
    return [
        *(_labeled(path, "right", context) for path in right[:each]),
        *(_labeled(path, "wrong", context) for path in wrong[:each]),
    ]


def _labeled(path: Trajectory, label: Literal["right", "wrong"], context: LabelContext) -> SelectionLabel:
    return SelectionLabel(
        question_id=path.question_id,
        question=path.question,
        path=path,
        label=label,
        provenance=context.provenance("selection"),
    )


LABEL_TASK = LabelTask(label, Options, needs, needs_answers=lambda options: True, grader=SELECTION)
