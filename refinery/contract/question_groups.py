"""The groups of questions for which results are also given on their own, beside those of all questions."""

from refinery.contract.records import Question

ALL = "all"  # the group of all questions


def groups_of(question: Question, several_datasets: bool) -> list[str]:
    """The dataset if there are several, the question's type, and its number of hops if its decomposition is annotated."""
    groups = [question.dataset] if several_datasets and question.dataset else []
    groups += [question.type] if question.type else []
    if question.decomposition:
        groups.append("multi_hop" if len(question.decomposition) > 1 else "single_hop")
    return list(dict.fromkeys(groups))
