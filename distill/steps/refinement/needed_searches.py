"""How many searches a `stepwise` question needs before its answer. A strong teacher knows many answers by heart, and a trajectory without
a search does not teach searching.
"""

from collections.abc import Mapping
from typing import Literal

from distill.label_context import LabelContext
from distill.teacher.teacher import RejectedRow
from refinery.contract.records import Question

MinSearches = int | Literal["annotated"]


def needed_searches(question: Question, context: LabelContext) -> int:
    """The searches before an answer: those of `min_searches`, but none if the student knows the answer, and at least one if it does not.

    Raises RejectedRow if the row needs more than `max_steps`, or if `knowledge` does not say whether the student knows the answer, and
    RecipeError if every row would need more than `max_steps`.
    """
    options, max_steps = context.options, context.recipe.max_steps
    if options.min_searches != "annotated" and options.min_searches > max_steps:
        raise options.fault("min_searches", f"{options.min_searches} searches do not fit into max_steps {max_steps}. Raise max_steps.")
    needed = _least(options.min_searches, question)
    if options.knowledge:
        needed = max(needed, 1) if _is_unknown(question, context.knowledge) else 0
    if needed > max_steps:
        raise RejectedRow("too_many_steps", f"{needed} searches are needed, max_steps is {max_steps}")
    return needed


def _least(min_searches: MinSearches, question: Question) -> int:
    if min_searches != "annotated":
        return min_searches
    return sum(step.supporting != [] for step in question.decomposition or []) or 1


def _is_unknown(question: Question, labels: Mapping[str, str]) -> bool:
    if question.id not in labels:
        raise RejectedRow("no_knowledge_label", f"no file of options.knowledge has a label for question {question.id}")
    return labels[question.id] == "unknow"
