"""The groups of questions for which results are also given on their own, beside those of all questions."""

from refinery.contract.records import Question

ALL = "all"  # the group of all questions


# Every question of these takes several hops, whether or not the release says which (HotpotQA's does not).
_OF_SEVERAL_HOPS = ("hotpotqa", "musique", "two_wiki")


def groups_of(question: Question, several_datasets: bool) -> list[str]:
    """The dataset if there are several, the question's type, and its number of hops if its dataset or its decomposition tells it."""
    groups = [question.dataset] if several_datasets and question.dataset else []
    groups += [question.type] if question.type else []
    if question.decomposition or question.dataset in _OF_SEVERAL_HOPS:
        several = question.dataset in _OF_SEVERAL_HOPS or len(question.decomposition or []) > 1
        groups.append("multi_hop" if several else "single_hop")
    return list(dict.fromkeys(groups))
